_start:
  li a0, -1
1: addi a0, a0, 1
  j 1b
