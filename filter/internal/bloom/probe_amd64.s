//go:build !purego

#include "textflag.h"
#include "go_asm.h"

DATA ones<>+0(SB)/8, $0x0000000100000001
DATA ones<>+8(SB)/8, $0x0000000100000001
DATA ones<>+16(SB)/8, $0x0000000100000001
DATA ones<>+24(SB)/8, $0x0000000100000001
GLOBL ones<>(SB), RODATA|NOPTR, $32

DATA mul<>+0(SB)/8, $const_mul1
GLOBL mul<>(SB), RODATA|NOPTR, $8

// FIND sets DX to the address of the line of the hash in AX, among n lines at base, and prefetches
// it. The macro comes as early as possible, so that the instructions before the first use of the
// line overlap with the cache miss.
#define FIND(base, n) \
	MULQ       n ; \
	SHLQ       $6, DX ; \
	ADDQ       base, DX ; \
	PREFETCHT0 (DX)

// PROBE probes the line at DX for the hash in CX, with the shifts at SI. It sets the carry flag if
// all bits are set.
//
// Y0 receives the nine bits of each probe at the top of a doubleword; Y2 the doublewords of the
// line that the upper four bits select, then shifted so that the bit that the lower five select is
// bit 0.
#define PROBE \
	IMULQ        mul<>(SB), CX ; \
	VMOVQ        CX, X0 ; \
	VPBROADCASTQ X0, Y0 ; \
	VPSLLVQ      0(SI), Y0, Y1 ; \
	VPSLLVQ      32(SI), Y0, Y0 ; \
	VPBLENDD     $0xaa, Y1, Y0, Y0 ; \
	VPSRLD       $28, Y0, Y1 ; \
	VPERMD       0(DX), Y1, Y2 ; \
	VPERMD       32(DX), Y1, Y3 ; \
	VBLENDVPS    Y0, Y3, Y2, Y2 ; \
	VPSLLD       $4, Y0, Y0 ; \
	VPSRLD       $27, Y0, Y0 ; \
	VPSRLVD      Y0, Y2, Y2 ; \
	VPTEST       ones<>(SB), Y2

// func probe(f *Filter, hash uint64) (positive bool)
TEXT ·probe(SB), NOSPLIT, $0-17
	MOVQ f+0(FP), DI
	MOVQ hash+8(FP), AX
	MOVQ AX, CX
	FIND(Filter_lines(DI), Filter_lines+8(DI))
	MOVQ Filter_shifts(DI), SI
	PROBE
	SETCS positive+16(FP)
	VZEROUPPER
	RET

// func probeIn(lines *byte, n int, s *shifts, hash uint64) (positive bool)
TEXT ·probeIn(SB), NOSPLIT, $0-33
	MOVQ hash+24(FP), AX
	MOVQ AX, CX
	FIND(lines+0(FP), n+8(FP))
	MOVQ s+16(FP), SI
	PROBE
	SETCS positive+32(FP)
	VZEROUPPER
	RET

// func probeMany(f *Filter, hashes *uint64, positive *bool, n int)
//
// It prefetches all lines first.
TEXT ·probeMany(SB), NOSPLIT, $0-32
	MOVQ f+0(FP), DX
	MOVQ hashes+8(FP), R9
	MOVQ positive+16(FP), R10
	MOVQ n+24(FP), R11
	MOVQ Filter_lines(DX), DI
	MOVQ Filter_lines+8(DX), R8
	MOVQ Filter_shifts(DX), SI
	LEAQ (R9)(R11*8), R13
	MOVQ R9, BX

ahead:
	MOVQ (BX), AX
	FIND(DI, R8)
	ADDQ $8, BX
	CMPQ BX, R13
	JB   ahead

more:
	MOVQ (R9), AX
	MOVQ AX, CX
	MULQ R8
	SHLQ $6, DX
	ADDQ DI, DX
	PROBE
	SETCS (R10)
	ADDQ $8, R9
	INCQ R10
	CMPQ R9, R13
	JB   more
	VZEROUPPER
	RET
