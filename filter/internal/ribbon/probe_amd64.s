//go:build !purego

#include "textflag.h"
#include "go_asm.h"

// Thresholds that bump no key.
DATA never<>+0(SB)/1, $0xff
GLOBL never<>(SB), RODATA|NOPTR, $1

// START computes, for the hash in SI: R13, the product that determines start and fingerprint; DX,
// the start; AX, its segment.
#define START(starts) \
	MOVQ  $const_mulStart, AX ; \
	IMULQ SI, AX ; \
	MOVQ  AX, R13 ; \
	MULQ  starts ; \
	MOVQ  DX, AX ; \
	SHRQ  $const_chunkShift, AX ; \
	MOVQ  DX, CX ; \
	SHRQ  $6, CX ; \
	ADDQ  CX, AX

// FETCH turns the segment in AX into the address of its words, which those of the next segment
// follow, and prefetches both. It comes as early as possible, so that the instructions that do not
// need these words overlap with the cache miss.
#define FETCH(data) \
	SHLQ       $5, AX ; \
	ADDQ       data, AX ; \
	PREFETCHT0 0(AX) ; \
	PREFETCHT0 63(AX)

// PROBE probes the words at AX, given the results of START. R8 is the verdict, unless the hash may
// be in another layer: then PROBE jumps to other.
//
// R8 and R9 receive the coefficients in the two segments. The parities of four columns are compared
// with four bits of the fingerprint. The threshold is read only for starts below bumpEnd within
// their bucket. The hash is not bumped if the threshold minus the start's class is positive.
#define PROBE(bumpEnd, thresholds) \
	MOVL  DX, BX ; \
	ANDL  $127, BX ; \
	ORQ   $1, SI ; \
	SHLXQ DX, SI, R8 ; \
	SHRQ  $1, SI ; \
	MOVQ  DX, R9 ; \
	NOTQ  R9 ; \
	SHRXQ R9, SI, R9 ; \
	RORXQ $(const_printShift+0), R13, R10 ; \
	RORXQ $(const_printShift+1), R13, R11 ; \
	RORXQ $(const_printShift+2), R13, R12 ; \
	RORXQ $(const_printShift+3), R13, R13 ; \
	MOVL    DX, CX ; \
	SHRL    $6, CX ; \
	SHRQ    $9, DX ; \
	ADDQ    thresholds, DX ; \
	LEAQ    never<>(SB), SI ; \
	CMPL    BX, bumpEnd ; \
	CMOVQCC SI, DX ; \
	MOVBLZX (DX), SI ; \
	ANDL    $6, CX ; \
	SHRXL   CX, SI, SI ; \
	ANDL    $3, SI ; \
	CMPL    BX, $const_class0 ; \
	SBBL    $0, SI ; \
	CMPL    BX, $const_class1 ; \
	SBBL    $0, SI ; \
	JLE     other ; \
	MOVQ    R8, CX ; \
	ANDQ    0(AX), CX ; \
	MOVQ    R9, SI ; \
	ANDQ    32(AX), SI ; \
	XORQ    SI, CX ; \
	POPCNTQ CX, CX ; \
	XORQ    CX, R10 ; \
	MOVQ    R8, CX ; \
	ANDQ    8(AX), CX ; \
	MOVQ    R9, SI ; \
	ANDQ    40(AX), SI ; \
	XORQ    SI, CX ; \
	POPCNTQ CX, CX ; \
	XORQ    CX, R11 ; \
	MOVQ    R8, CX ; \
	ANDQ    16(AX), CX ; \
	MOVQ    R9, SI ; \
	ANDQ    48(AX), SI ; \
	XORQ    SI, CX ; \
	POPCNTQ CX, CX ; \
	XORQ    CX, R12 ; \
	ANDQ    24(AX), R8 ; \
	ANDQ    56(AX), R9 ; \
	XORQ    R9, R8 ; \
	POPCNTQ R8, R8 ; \
	XORQ    R13, R8 ; \
	ORQ     R10, R11 ; \
	ORQ     R12, R8 ; \
	ORQ     R11, R8 ; \
	NOTQ    R8 ; \
	ANDL    $const_Passed, R8

// func probe(q *quads, hash uint64) (verdict uint8)
//
// It needs POPCNT and BMI2, unless q.count is 0.
TEXT ·probe(SB), NOSPLIT, $0-17
	MOVQ q+0(FP), DI
	MOVQ hash+8(FP), SI
	START(quads_starts(DI))
	CMPL AX, quads_count(DI)
	JAE  other
	FETCH(quads_data(DI))
	PROBE(quads_bumpEnd(DI), quads_thresholds(DI))
	MOVB R8, verdict+16(FP)
	RET

other:
	MOVB $const_Elsewhere, verdict+16(FP)
	RET

// func probeTailAt(block, tail *byte, hash uint64) (verdict uint8)
//
// It is probeTailPlain, but returns Elsewhere if the CPU lacks an instruction. It prefetches from the
// first plane before it knows that the address is in the block.
TEXT ·probeTailAt(SB), NOSPLIT, $0-25
	CMPB ·canProbe(SB), $0
	JEQ  other
	MOVQ block+0(FP), DI
	MOVQ tail+8(FP), BX
	MOVQ hash+16(FP), SI

	// R15: the layers, before the tail; R11: the segments that the starts of the first layer fill;
	// R10: the first plane.
	MOVBLZX 9(BX), CX
	SHLQ    $2, CX
	MOVQ    BX, R15
	SUBQ    CX, R15
	CMPQ    R15, DI
	JB      other
	MOVL    (R15), R11
	MOVQ    R11, R12
	SHLQ    $6, R12
	MOVQ    16(BX), R9
	LEAQ    (DI)(R9*1), R10
	START(R12)
	FETCH(R10)

	// Four columns in all segments, and two layers or more.
	CMPL 4(BX), $0
	JNE  other
	CMPB 8(BX), $const_PlaneColumns
	JNE  other
	CMPB 9(BX), $2
	JB   other

	// R15: the size of the first plane and all thresholds.
	SUBQ DI, R15
	CMPQ R9, R15
	JA   other
	SUBQ R9, R15

	// R9: the number of segments, which must not be below that of the first layer, in R12.
	TESTL R11, R11
	JZ    other
	LEAQ  (const_chunkStarts/const_width-1)(R11), R12
	SHRQ  $(const_chunkShift-6), R12
	ADDQ  R11, R12
	MOVL  (BX), R9
	CMPQ  R12, R9
	JA    other

	// R9: the size of the plane; R11: that of the plane and the first layer's thresholds.
	SHLQ $5, R9
	ADDQ $7, R11
	SHRQ $3, R11
	ADDQ R9, R11
	CMPQ R11, R15
	JA   other

	// DI: the thresholds; R15: the value for bumpEnd.
	LEAQ    (R10)(R9*1), DI
	MOVL    $const_class0, R15
	MOVL    $const_bucketStarts, CX
	CMPB    11(BX), $1
	CMOVLEQ CX, R15
	PROBE(R15, DI)
	MOVB R8, verdict+24(FP)
	RET

other:
	MOVB $const_Elsewhere, verdict+24(FP)
	RET

// AHEAD prefetches the memory that a probe of the quads at DI reads for the hash at BX, and
// advances BX to the next hash.
#define AHEAD \
	MOVQ       $const_mulStart, AX ; \
	IMULQ      (BX), AX ; \
	MULQ       quads_starts(DI) ; \
	MOVQ       DX, AX ; \
	SHRQ       $const_chunkShift, AX ; \
	MOVQ       DX, CX ; \
	SHRQ       $6, CX ; \
	ADDQ       CX, AX ; \
	FETCH(quads_data(DI)) ; \
	SHRQ       $9, DX ; \
	ADDQ       quads_thresholds(DI), DX ; \
	PREFETCHT0 (DX) ; \
	ADDQ       $8, BX

// func fetch(q *quads, hash uint64)
TEXT ·fetch(SB), NOSPLIT, $0-16
	MOVQ q+0(FP), DI
	LEAQ hash+8(FP), BX
	AHEAD
	RET

// DISTANCE is the number of hashes by which prefetches are ahead of probes in probeMany: a core has
// about ten outstanding cache misses at most.
#define DISTANCE 12

// func probeMany(q *quads, hashes *uint64, verdicts *uint8, n int)
TEXT ·probeMany(SB), NOSPLIT, $16-32
	MOVQ q+0(FP), DI
	MOVQ hashes+8(FP), R14
	MOVQ verdicts+16(FP), R15
	MOVQ n+24(FP), AX
	LEAQ (R14)(AX*8), AX
	MOVQ AX, end-8(SP)
	MOVQ R14, BX
	LEAQ (DISTANCE*8)(R14), R8
	CMPQ R8, AX
	CMOVQHI AX, R8

first:
	AHEAD
	CMPQ BX, R8
	JB   first
	MOVQ BX, next-16(SP)

more:
	MOVQ next-16(SP), BX
	CMPQ BX, end-8(SP)
	JAE  fetched
	AHEAD
	MOVQ BX, next-16(SP)

fetched:
	MOVQ (R14), SI
	START(quads_starts(DI))
	CMPL AX, quads_count(DI)
	JAE  other
	SHLQ $5, AX
	ADDQ quads_data(DI), AX
	PROBE(quads_bumpEnd(DI), quads_thresholds(DI))
	MOVB R8, (R15)

after:
	ADDQ $8, R14
	INCQ R15
	CMPQ R14, end-8(SP)
	JB   more
	RET

other:
	MOVB $const_Elsewhere, (R15)
	JMP  after

// func prefetch(p unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ       p+0(FP), AX
	PREFETCHT0 (AX)
	RET
