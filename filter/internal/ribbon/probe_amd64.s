//go:build !purego

#include "textflag.h"
#include "go_asm.h"

// The threshold of buckets that bump nothing.
DATA never<>+0(SB)/1, $0xff
GLOBL never<>(SB), RODATA|NOPTR, $1

// START turns the hash in SI into R13, the product that decides start and fingerprint,
// DX, the start, and AX, its segment.
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

// FETCH turns the segment in AX into the address of its words and those of the segment
// after it, and asks for them. What can be done without them is done between here and
// the first use of them: that is the head start of a cache miss over those of the probes
// to come.
#define FETCH(data) \
	SHLQ       $5, AX ; \
	ADDQ       data, AX ; \
	PREFETCHT0 0(AX) ; \
	PREFETCHT0 63(AX)

// ASK asks the words at AX for what START has left. R8 is the verdict, unless it jumps to
// other.
//
// R8 and R9 become the coefficients in each segment. The parities of four columns are
// compared with four bits of the fingerprint. Most hashes cannot be in a later layer; of
// the others the threshold of the start's bucket, less the start's class, is above 0 if
// the hash is not bumped.
#define ASK(ask, thresholds) \
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
	CMPL    BX, ask ; \
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
	ASK(quads_ask(DI), quads_thresholds(DI))
	MOVB R8, verdict+16(FP)
	RET

other:
	MOVB $const_Elsewhere, verdict+16(FP)
	RET

// func askTailAt(block, tail *byte, hash uint64) (verdict uint8)
//
// It does what askTailPlain does, or says Elsewhere if this processor cannot. It asks for
// the memory of the first plane before it knows that this lies in the block.
TEXT ·askTailAt(SB), NOSPLIT, $0-25
	CMPB ·canProbe(SB), $0
	JEQ  other
	MOVQ block+0(FP), DI
	MOVQ tail+8(FP), BX
	MOVQ hash+16(FP), SI

	// R15: the layers, before the tail; R11: the segments that the starts of the first
	// one fill; R10: the first plane.
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

	// R15: the bytes of the first plane and all thresholds.
	SUBQ DI, R15
	CMPQ R9, R15
	JA   other
	SUBQ R9, R15

	// R9: all segments, which those of the first layer are some of.
	TESTL R11, R11
	JZ    other
	LEAQ  (const_chunkStarts/const_width-1)(R11), R12
	SHRQ  $(const_chunkShift-6), R12
	ADDQ  R11, R12
	MOVL  (BX), R9
	CMPQ  R12, R9
	JA    other

	// R9: the bytes of the plane; R11: with those of the first layer's thresholds.
	SHLQ $5, R9
	ADDQ $7, R11
	SHRQ $3, R11
	ADDQ R9, R11
	CMPQ R11, R15
	JA   other

	// DI: the thresholds; R15: the starts of a bucket that may be bumped.
	LEAQ    (R10)(R9*1), DI
	MOVL    $const_class0, R15
	MOVL    $const_bucketStarts, CX
	CMPB    11(BX), $1
	CMOVLEQ CX, R15
	ASK(R15, DI)
	MOVB R8, verdict+24(FP)
	RET

other:
	MOVB $const_Elsewhere, verdict+24(FP)
	RET

// AHEAD asks for the memory of the quads at DI for the hash at BX.
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

// DISTANCE is how far probeMany asks for memory ahead of the probes: a processor has
// some ten cache misses under way at most.
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
	ASK(quads_ask(DI), quads_thresholds(DI))
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
