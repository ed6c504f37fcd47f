# What `make install` installs, and how. The Makefile includes this file.

# For multiarch: make install LIBDIR=/usr/lib/x86_64-linux-gnu
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
DOCDIR ?= $(DATADIR)/doc/fp8c
HEADERS := $(wildcard frontend/fp8c*.h)
MODELS := $(wildcard frontend/models/*.f8)
SUITES := $(wildcard bench/suites/*.csv)
EXAMPLES := $(filter-out %/run %/readme,$(wildcard tests/examples/*))
MAN := $(BUILD)/share/fp8c.1
COMPLETIONS := $(BUILD)/share/fp8c.bash $(BUILD)/share/_fp8c $(BUILD)/share/fp8c.fish
SHIMDIR = $(LIBDIR)/fp8c
INSTALLED = $(addprefix $(SHIMDIR)/,$(notdir $(SHIMS))) $(BINDIR)/fp8c $(LIBDIR)/$(SONAME) $(LIBDIR)/libfp8c.so \
            $(LIBDIR)/libfp8c.a $(LIBDIR)/pkgconfig/fp8c.pc \
            $(addprefix $(INCLUDEDIR)/,$(notdir $(HEADERS))) $(MANDIR)/man1/fp8c.1 \
            $(DATADIR)/bash-completion/completions/fp8c $(DATADIR)/zsh/site-functions/_fp8c \
            $(DATADIR)/fish/vendor_completions.d/fp8c.fish \
            $(addprefix $(DOCDIR)/,LICENSE tutorial.md embedding.md language.md ops.md) \
            $(addprefix $(DOCDIR)/examples/,$(notdir $(EXAMPLES))) \
            $(addprefix $(DATADIR)/fp8c/models/,$(notdir $(MODELS))) \
            $(addprefix $(DATADIR)/fp8c/suites/,$(notdir $(SUITES)))
# The program prints its man page and completions from its own tables of commands and options.
$(MAN): $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< help --man >$@
$(BUILD)/share/fp8c.bash: $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< completion bash >$@
$(BUILD)/share/_fp8c: $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< completion zsh >$@
$(BUILD)/share/fp8c.fish: $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< completion fish >$@
# A program that is linked to the library must find it when it starts. With DESTDIR that is the matter
# of whoever makes a package of it. Without it, the loader's cache is written anew. Where the loader
# still does not find the library, the pkg-config file gets an rpath, which this prints.
LOADER = [ -n "$(DESTDIR)" ] || { PATH="$$PATH:/usr/sbin:/sbin"; ldconfig 2>/dev/null; \
         ldconfig -p 2>/dev/null | sed -n 's/.*=> //p' | grep '/$(subst .,\.,$(SONAME))$$' | { \
             while read -r at; do [ "$$at" -ef "$(LIBDIR)/$(SONAME)" ] && exit; done; \
             echo "The loader does not look in $(LIBDIR), or its cache can't be written: what is linked by pkg-config" \
                 "with PKG_CONFIG_PATH=$(LIBDIR)/pkgconfig runs, other programs need LD_LIBRARY_PATH=$(LIBDIR)." >&2; \
             echo '-Wl,-rpath,$${libdir} '; }; }
installable: build $(STATIC) $(MAN) $(COMPLETIONS)
install:
	@.ci/install --missing build || true
	@$(MAKE) --no-print-directory installable
	install -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	install $(BUILD)/fp8c $(DESTDIR)$(BINDIR)/fp8c
	install -m 644 $(SO) $(STATIC) $(DESTDIR)$(LIBDIR)
	$(if $(SHIMS),install -m 644 $(SHIMS) $(DESTDIR)$(SHIMDIR))
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libfp8c.so
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	@rpath=$$($(LOADER)) && \
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	    -e 's|@INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|' -e 's|@VERSION@|$(VERSION)|' \
	    -e "s|@RPATH@|$$rpath|" frontend/fp8c.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/fp8c.pc
	install -m 644 $(MAN) $(DESTDIR)$(MANDIR)/man1/fp8c.1
	install -m 644 $(BUILD)/share/fp8c.bash $(DESTDIR)$(DATADIR)/bash-completion/completions/fp8c
	install -m 644 $(BUILD)/share/_fp8c $(DESTDIR)$(DATADIR)/zsh/site-functions/_fp8c
	install -m 644 $(BUILD)/share/fp8c.fish $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/fp8c.fish
	install -m 644 LICENSE frontend/tutorial.md frontend/embedding.md $(DESTDIR)$(DOCDIR)
	install -m 644 frontend/text/README.md $(DESTDIR)$(DOCDIR)/language.md
	install -m 644 frontend/text/OPS.md $(DESTDIR)$(DOCDIR)/ops.md
	install -m 644 $(EXAMPLES) $(DESTDIR)$(DOCDIR)/examples
	install -m 644 $(MODELS) $(DESTDIR)$(DATADIR)/fp8c/models
	install -m 644 $(SUITES) $(DESTDIR)$(DATADIR)/fp8c/suites
# Without debug information the shared library is three fifths as large.
install-strip: install
	strip $(DESTDIR)$(BINDIR)/fp8c
	strip --strip-unneeded $(DESTDIR)$(LIBDIR)/$(notdir $(SO))
	strip --strip-debug $(DESTDIR)$(LIBDIR)/libfp8c.a
# Folders stay, since others may have files there, but for our own that are empty.
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	@rmdir $(addprefix $(DESTDIR),$(DOCDIR)/examples $(DOCDIR) $(DATADIR)/fp8c/models $(DATADIR)/fp8c/suites $(DATADIR)/fp8c) $(DESTDIR)$(SHIMDIR) 2>/dev/null || true
	@[ -n "$(DESTDIR)" ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig 2>/dev/null || true

.PHONY: installable install install-strip uninstall
