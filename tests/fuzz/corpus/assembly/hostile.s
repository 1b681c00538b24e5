_start:
.set x, x
.zero 99999999999
.balign 1099511627776
li a0, ((((1 << 99999999))))
nmp.conv a0, a1
1: j 1b
.layer 0, a, conv, b
