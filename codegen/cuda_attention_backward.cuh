/* Backward kernels: to come. */
