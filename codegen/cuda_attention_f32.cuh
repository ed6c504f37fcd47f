/* f32 kernels: to come. */
