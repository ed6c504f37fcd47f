"""Tiny models of the classes that people train: decoders, encoders, both, images, sound and timm.

Each row of `MODELS` is a class, as "Llama", or a class and what is special about it, as "Llama, left
padding". Models have two layers and widths of 32 to 64; lengths and image sizes are odd where the
class permits, and sliding windows are shorter than the sequence. There is no dropout. The loss is
the class's own where it has one.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import transformers

from models import ModelAndInputs, ids, padding

WIDTH, INNER, HEADS, WORDS, LENGTH = 32, 48, 4, 61, 9
SMALL = 0.02  # the standard deviation of what a model begins with as zeros


# ---- inputs ----


def text(padded: bool, labelled: str = "all", length: int = LENGTH, **others: Any) -> dict[str, Any]:
    """Tokens, with labels. padded: the first positions of the first sequence are hidden, and have no
    labels. labelled: "all" tokens, every "third", or "none".

    The hidden tokens are not the padding token. Its embedding is 0, and a decoder's hidden positions
    see nothing else. So they would be 0 up to the last norm, whose gradient there is hundreds of times
    that of other positions: the last of them predicts the first label.
    """
    tokens = ids(2, length, WORDS)
    mask = padding(2, length) if padded else torch.ones_like(tokens)
    inputs: dict[str, Any] = {"input_ids": tokens}
    if labelled != "none":
        counts = mask * (torch.arange(length) % 3 == 1) if labelled == "third" else mask
        inputs["labels"] = torch.where(counts.bool(), tokens, -100)
    if padded:
        inputs["attention_mask"] = mask
    return {**inputs, **others}


def noise(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def image(size: int) -> dict[str, Any]:
    return {"pixel_values": noise(3, 3, size, size), "labels": torch.tensor([0, 3, 4])}


# ---- decoders ----


def decoder(kind: str, **options: Any) -> Callable[[bool], ModelAndInputs]:
    """A causal language model of transformers. options: what its config names in its own way, and what
    else is to differ."""

    def make(padded: bool) -> ModelAndInputs:
        common = dict(
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            hidden_size=WIDTH,
            vocab_size=WORDS,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        config = getattr(transformers, options.get("config", kind + "Config"))
        told = {k: v for k, v in options.items() if k not in ("config", "model")}
        model = getattr(transformers, options.get("model", kind + "ForCausalLM"))
        return model(config(**{**common, **told})), text(padded, use_cache=False)

    return make


def grouped(kind: str, **options: Any) -> Callable[[bool], ModelAndInputs]:
    """A decoder like Llama: two heads of keys for four of queries, and a gated MLP."""
    return decoder(
        kind,
        **{
            "num_key_value_heads": 2,
            "intermediate_size": INNER,
            "head_dim": 8,
            "max_position_embeddings": 32,
            **options,
        },
    )


WINDOW = ["sliding_attention", "full_attention"]
DECODERS: dict[str, Callable[[bool], ModelAndInputs]] = {
    "GPT2": decoder(
        "GPT2", model="GPT2LMHeadModel", n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    ),
    "GPTNeo": decoder(
        "GPTNeo",
        num_layers=2,
        num_heads=HEADS,
        attention_types=[[["global", "local"], 1]],
        window_size=5,
        max_position_embeddings=32,
        intermediate_size=INNER,
    ),
    "GPTNeoX": decoder("GPTNeoX", intermediate_size=INNER, rotary_pct=0.5, max_position_embeddings=32),
    "GPTJ": decoder("GPTJ", n_positions=32, rotary_dim=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "GPTBigCode": decoder(
        "GPTBigCode", n_positions=32, n_inner=INNER, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    ),
    "OPT": decoder("OPT", ffn_dim=INNER, word_embed_proj_dim=WIDTH, max_position_embeddings=32, dropout=0.0),
    "BLOOM": decoder("Bloom"),
    "MPT": decoder("Mpt", d_model=WIDTH, n_heads=HEADS, n_layers=2, max_seq_len=32, expansion_ratio=2),
    "Falcon": decoder("Falcon", max_position_embeddings=32, ffn_hidden_size=INNER),
    "Llama": grouped("Llama"),
    "Llama, eager attention": grouped("Llama", attn_implementation="eager"),
    "Mistral": grouped("Mistral", sliding_window=5),
    "Mixtral": grouped("Mixtral", num_local_experts=4),
    "Qwen2": grouped("Qwen2"),
    "Qwen3": grouped("Qwen3"),
    "Qwen3-MoE": grouped(
        "Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=INNER, norm_topk_prob=True
    ),
    "Gemma": grouped("Gemma"),
    "Gemma2": grouped("Gemma2", sliding_window=5, layer_types=WINDOW, query_pre_attn_scalar=8),
    "Gemma3": grouped(
        "Gemma3", config="Gemma3TextConfig", sliding_window=5, layer_types=WINDOW, query_pre_attn_scalar=8
    ),
    "Phi": decoder("Phi", intermediate_size=INNER, max_position_embeddings=32),
    "Phi3": decoder(
        "Phi3",
        num_key_value_heads=2,
        intermediate_size=INNER,
        max_position_embeddings=32,
        original_max_position_embeddings=32,
    ),
    "StableLM": decoder(
        "StableLm",
        num_key_value_heads=2,
        intermediate_size=INNER,
        partial_rotary_factor=0.5,
        max_position_embeddings=32,
    ),
    "OLMo2": grouped("Olmo2"),
    "Cohere": grouped("Cohere"),
    "Granite": grouped(
        "Granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        logits_scaling=8.0,
        attention_multiplier=0.125,
    ),
    "Starcoder2": grouped("Starcoder2", embedding_dropout=0.0, residual_dropout=0.0),
    "Nemotron": grouped("Nemotron"),
    "SmolLM3": grouped("SmolLM3", no_rope_layer_interval=2),
    "GLM4": grouped("Glm4"),
    "GPT-OSS": grouped(
        "GptOss",
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=5,
        layer_types=WINDOW,
        rope_scaling=None,
    ),
    "DeepSeek-V3": decoder(
        "DeepseekV3",
        num_key_value_heads=HEADS,
        intermediate_size=INNER,
        moe_intermediate_size=WIDTH,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        n_shared_experts=1,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        max_position_embeddings=32,
        rope_scaling=None,
    ),
    "Mamba": decoder("Mamba", state_size=8, time_step_rank=4),
}


# ---- encoders ----


def encoder(kind: str, **options: Any) -> Callable[[bool], ModelAndInputs]:
    """A masked language model of transformers."""

    def make(padded: bool) -> ModelAndInputs:
        common = dict(
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            vocab_size=WORDS,
            max_position_embeddings=32,
            pad_token_id=0,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        config = getattr(transformers, kind + "Config")(**{**common, **options})
        return getattr(transformers, kind + "ForMaskedLM")(config), text(padded, "third", 11)

    return make


ENCODERS: dict[str, Callable[[bool], ModelAndInputs]] = {
    "BERT": encoder("Bert"),
    "RoBERTa": encoder("Roberta"),
    "ALBERT": encoder("Albert", embedding_size=16, classifier_dropout_prob=0.0),
    "DistilBERT": encoder(
        "DistilBert",
        dim=WIDTH,
        hidden_dim=INNER,
        n_layers=2,
        n_heads=HEADS,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "ELECTRA": encoder("Electra", embedding_size=16),
    "DeBERTa-v2": encoder(
        "DebertaV2",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=4,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
    ),
    "MPNet": encoder("MPNet"),
    "ModernBERT": encoder(
        "ModernBert",
        global_attn_every_n_layers=2,
        local_attention=6,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
        reference_compile=False,
    ),
}


# ---- an encoder and a decoder ----


def t5(padded: bool) -> ModelAndInputs:
    config = transformers.T5Config(
        d_model=WIDTH,
        d_kv=8,
        d_ff=INNER,
        num_layers=2,
        num_heads=HEADS,
        vocab_size=WORDS,
        dropout_rate=0.0,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config), text(
        padded, "none", labels=ids(2, 7, WORDS), use_cache=False
    )


def bart(padded: bool) -> ModelAndInputs:
    config = transformers.BartConfig(
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        vocab_size=WORDS,
        max_position_embeddings=32,
        dropout=0.0,
        pad_token_id=0,
        decoder_start_token_id=2,
    )
    return transformers.BartForConditionalGeneration(config), text(
        padded, "none", labels=ids(2, 7, WORDS), use_cache=False
    )


def whisper(padded: bool) -> ModelAndInputs:
    """Its encoder has no mask, so the padding is the decoder's."""
    config = transformers.WhisperConfig(
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        vocab_size=WORDS,
        num_mel_bins=10,
        max_source_positions=15,
        max_target_positions=32,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    inputs: dict[str, Any] = {
        "input_features": noise(2, 10, 30),
        "labels": ids(2, 9, WORDS),
        "use_cache": False,
    }
    if padded:
        inputs["decoder_attention_mask"] = padding(2, 9)
    return transformers.WhisperForConditionalGeneration(config), inputs


# ---- images, sound, and pairs of texts and images ----


def vision(kind: str, size: int, **options: Any) -> Callable[[], ModelAndInputs]:
    """A classifier of images of transformers."""

    def make() -> ModelAndInputs:
        config = getattr(transformers, kind + "Config")(**{"image_size": size, "num_labels": 5, **options})
        return getattr(transformers, kind + "ForImageClassification")(config), image(size)

    return make


PATCHES = dict(
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    hidden_size=WIDTH,
    intermediate_size=INNER,
    patch_size=5,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def vit_mae() -> ModelAndInputs:
    """The patches that it hides are told by noise, which it would draw."""
    config = transformers.ViTMAEConfig(
        **PATCHES,
        image_size=15,
        mask_ratio=0.5,
        decoder_hidden_size=WIDTH,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=HEADS,
        decoder_intermediate_size=INNER,
    )
    inputs = {"pixel_values": noise(3, 3, 15, 15), "noise": noise(3, 9, seed=6)}
    return transformers.ViTMAEForPreTraining(config), inputs


def pair(kind: str) -> Callable[[bool], ModelAndInputs]:
    """CLIP or SigLIP: a text belongs to an image."""

    def make(padded: bool) -> ModelAndInputs:
        common = dict(
            num_hidden_layers=2, num_attention_heads=HEADS, hidden_size=WIDTH, intermediate_size=INNER
        )
        told = {
            "text_config": dict(
                common,
                vocab_size=WORDS,
                max_position_embeddings=32,
                projection_size=WIDTH,
                eos_token_id=60,
                bos_token_id=1,
                pad_token_id=0,
            ),
            "vision_config": dict(common, image_size=15, patch_size=5),
        }
        if kind == "CLIP":
            told["projection_dim"] = 24
        model = getattr(transformers, kind + "Model")(getattr(transformers, kind + "Config")(**told))
        inputs = text(padded, "none", pixel_values=noise(2, 3, 15, 15), return_loss=True)
        inputs["input_ids"][:, -1] = 60  # CLIP reads the text's embedding at its end
        return model, inputs

    return make


def wav2vec2(padded: bool) -> ModelAndInputs:
    """Classes of sounds. The padding hides three frames, of 6 samples each."""
    config = transformers.Wav2Vec2Config(
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        conv_dim=(24, 32),
        conv_kernel=(5, 3),
        conv_stride=(3, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=5,
        num_conv_pos_embedding_groups=2,
        vocab_size=WORDS,
        num_labels=5,
        classifier_proj_size=24,
        apply_spec_augment=False,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
    )
    inputs: dict[str, Any] = {"input_values": noise(2, 71), "labels": torch.tensor([3, 1])}
    if padded:
        inputs["attention_mask"] = torch.ones(2, 71, dtype=torch.long)
        inputs["attention_mask"][0, :18] = 0
    return transformers.Wav2Vec2ForSequenceClassification(config), inputs


MASKED: dict[str, Callable[[bool], ModelAndInputs]] = {
    **DECODERS,
    **ENCODERS,
    "T5": t5,
    "BART": bart,
    "Whisper": whisper,
    "CLIP": pair("CLIP"),
    "SigLIP": pair("Siglip"),
    "Wav2Vec2": wav2vec2,
}
IMAGES: dict[str, Callable[[], ModelAndInputs]] = {
    "ViT": vision("ViT", 15, **PATCHES),
    "DeiT": vision("DeiT", 15, **PATCHES),
    "Swin": vision(
        "Swin",
        15,
        patch_size=3,
        embed_dim=WIDTH,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=3,
        drop_path_rate=0.0,
        mlp_ratio=2.0,
    ),
    "ConvNeXt": vision(
        "ConvNext",
        21,
        hidden_sizes=[32, 48],
        depths=[2, 1],
        num_stages=2,
        patch_size=3,
        layer_scale_init_value=0.1,
    ),
    "DINOv2": vision("Dinov2", 15, **{**PATCHES, "mlp_ratio": 2}),
    "ViT-MAE": vit_mae,
    "ResNet": vision(
        "ResNet", 33, embedding_size=16, hidden_sizes=[32, 48], depths=[2, 1], layer_type="basic"
    ),
}


# ---- timm ----


class Classified(torch.nn.Module):
    """A classifier of timm with its loss."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.model(pixels), target)


def classified(model: torch.nn.Module, size: int) -> ModelAndInputs:
    return Classified(model), {"pixels": noise(3, 3, size, size), "target": torch.tensor([0, 3, 4])}


def timm_model(name: str, size: int, **options: Any) -> Callable[[], ModelAndInputs]:
    def make() -> ModelAndInputs:
        import timm

        model = timm.create_model(name, num_classes=5, **options)
        return classified(model, size)

    return make


def maxvit() -> ModelAndInputs:
    from timm.models import maxxvit

    config = maxxvit.MaxxVitCfg(
        embed_dim=(32, 48),
        depths=(1, 1),
        block_type=("M", "M"),
        stem_width=16,
        transformer_cfg=maxxvit.MaxxVitTransformerCfg(dim_head=8, window_size=(3, 3)),
    )
    model = maxxvit.MaxxVit(config, img_size=24, num_classes=5)
    return classified(model, 24)


def mixer() -> ModelAndInputs:
    from timm.models import mlp_mixer

    model = mlp_mixer.MlpMixer(num_classes=5, img_size=15, patch_size=5, num_blocks=2, embed_dim=WIDTH)
    return classified(model, 15)


TIMM = dict(img_size=15, patch_size=5, embed_dim=WIDTH, depth=2, num_heads=HEADS)
IMAGES.update(
    {
        "timm vit": timm_model("vit_base_patch16_224", 15, **TIMM),
        "timm deit3": timm_model("deit3_small_patch16_224", 15, **TIMM, init_values=0.1),
        "timm swin": timm_model(
            "swin_tiny_patch4_window7_224",
            15,
            img_size=15,
            patch_size=3,
            embed_dim=WIDTH,
            depths=(2, 1),
            num_heads=(2, 4),
            window_size=3,
            drop_path_rate=0.0,
        ),
        "timm maxvit": maxvit,
        "timm mixer": mixer,
        "timm beit": timm_model("beit_base_patch16_224", 15, **TIMM),
        "timm eva02": timm_model("eva02_tiny_patch14_224", 15, **TIMM),
        "timm convnext": timm_model(
            "convnext_tiny", 33, depths=(1, 1, 1, 1), dims=(16, 32, 48, 64), ls_init_value=0.1
        ),
        "timm resnet18": timm_model("resnet18", 33, channels=(16, 32, 48, 64), zero_init_last=False),
        "timm efficientnet": timm_model("test_efficientnet", 33),
    }
)


# ---- all of them ----

LEFT = ", left padding"
MODELS: dict[str, Callable[[], ModelAndInputs]] = {}
for _name, _masked in MASKED.items():
    MODELS[_name] = lambda made=_masked: made(False)
    MODELS[_name + LEFT] = lambda made=_masked: made(True)
MODELS.update(IMAGES)


def class_of(name: str) -> str:
    """The class of a row: "Llama" of "Llama, eager attention, left padding"."""
    return name.partition(",")[0]


def fill(model: torch.nn.Module) -> None:
    """The weights that the library begins with; where these are zeros, as an expert's or a gate's,
    small ones, so that each matters for the gradient."""
    with torch.no_grad():
        for param in model.parameters():
            if not param.requires_grad:
                continue
            if not param.any():
                param.normal_(std=SMALL)


def make(name: str, seed: int = 0) -> ModelAndInputs:
    """A model of `MODELS` in training mode, with weights from the seed."""
    torch.manual_seed(seed)
    model, inputs = MODELS[name]()
    fill(model)
    return model.train(), inputs
