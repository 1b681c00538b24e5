_start:
  csrr a0, mcycle
  .word 0xffffffff
