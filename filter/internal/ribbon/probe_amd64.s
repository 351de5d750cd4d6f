//go:build !purego

#include "textflag.h"
#include "go_asm.h"

// ASK asks the quads at DI for the hash in SI. R8 has the verdict at done; at other
// it is Elsewhere.
//
// DX becomes the start, AX the words of its two segments, R8 and R9 the coefficients
// in each, and R13, the product, decides start and fingerprint. The parities of four
// columns are compared with four bits of the fingerprint. Most hashes that are
// rejected cannot be in a later layer; of the others the threshold of the start's
// bucket, less the start's class, is above 0 if the hash is not bumped.
#define ASK \
	MOVQ  $const_mulStart, AX ; \
	IMULQ SI, AX ; \
	MOVQ  AX, R13 ; \
	MULQ  quads_starts(DI) ; \
	MOVQ DX, AX ; \
	SHRQ $const_chunkShift, AX ; \
	MOVQ DX, CX ; \
	SHRQ $6, CX ; \
	ADDQ CX, AX ; \
	CMPQ AX, quads_count(DI) ; \
	JAE  other ; \
	SHLQ $5, AX ; \
	ADDQ quads_data(DI), AX ; \
	ORQ   $1, SI ; \
	SHLXQ DX, SI, R8 ; \
	SHRQ  $1, SI ; \
	MOVQ  DX, R9 ; \
	NOTQ  R9 ; \
	SHRXQ R9, SI, R9 ; \
	MOVQ    R8, R10 ; \
	ANDQ    0(AX), R10 ; \
	MOVQ    R9, R11 ; \
	ANDQ    32(AX), R11 ; \
	XORQ    R11, R10 ; \
	POPCNTQ R10, R10 ; \
	MOVQ    R8, R11 ; \
	ANDQ    8(AX), R11 ; \
	MOVQ    R9, R12 ; \
	ANDQ    40(AX), R12 ; \
	XORQ    R12, R11 ; \
	POPCNTQ R11, R11 ; \
	MOVQ    R8, R12 ; \
	ANDQ    16(AX), R12 ; \
	MOVQ    R9, CX ; \
	ANDQ    48(AX), CX ; \
	XORQ    CX, R12 ; \
	POPCNTQ R12, R12 ; \
	ANDQ    24(AX), R8 ; \
	ANDQ    56(AX), R9 ; \
	XORQ    R9, R8 ; \
	POPCNTQ R8, R8 ; \
	RORXQ $(const_printShift+0), R13, SI ; \
	XORQ  SI, R10 ; \
	RORXQ $(const_printShift+1), R13, SI ; \
	XORQ  SI, R11 ; \
	RORXQ $(const_printShift+2), R13, SI ; \
	XORQ  SI, R12 ; \
	RORXQ $(const_printShift+3), R13, SI ; \
	XORQ  SI, R8 ; \
	ORQ   R10, R11 ; \
	ORQ   R12, R8 ; \
	ORQ   R11, R8 ; \
	NOTQ  R8 ; \
	ANDL  $const_Passed, R8 ; \
	MOVL DX, BX ; \
	ANDL $127, BX ; \
	CMPQ BX, quads_ask(DI) ; \
	JAE  done ; \
	MOVL    DX, CX ; \
	SHRL    $6, CX ; \
	ANDL    $6, CX ; \
	SHRQ    $9, DX ; \
	MOVQ    quads_thresholds(DI), SI ; \
	MOVBLZX (SI)(DX*1), SI ; \
	SHRXL   CX, SI, SI ; \
	ANDL    $3, SI ; \
	CMPL    BX, $const_class0 ; \
	SBBL    $0, SI ; \
	CMPL    BX, $const_class1 ; \
	SBBL    $0, SI ; \
	JLE     other

// func probe(q *quads, hash uint64) (verdict uint8)
//
// It needs POPCNT and BMI2, unless q.count is 0.
TEXT ·probe(SB), NOSPLIT, $0-17
	MOVQ q+0(FP), DI
	MOVQ hash+8(FP), SI
	ASK

done:
	MOVB R8, verdict+16(FP)
	RET

other:
	MOVB $const_Elsewhere, verdict+16(FP)
	RET

// func askTailAt(block, tail *byte, hash uint64) (verdict uint8)
//
// It does what askTailPlain does.
TEXT ·askTailAt(SB), NOSPLIT, $40-25
	MOVQ block+0(FP), DI
	MOVQ tail+8(FP), BX
	MOVQ hash+16(FP), SI

	// Four columns in all segments, and two layers or more.
	MOVQ    4(BX), AX
	SHLQ    $24, AX
	MOVQ    $(const_PlaneColumns<<56), CX
	CMPQ    AX, CX
	JNE     other
	MOVBLZX 9(BX), CX
	CMPL    CX, $2
	JB      other

	// DI, R10: the first plane and the thresholds; R8: the layers after them.
	SHLQ $2, CX
	MOVQ BX, R8
	SUBQ CX, R8
	MOVQ R8, R10
	SUBQ DI, R10
	JB   other
	MOVQ 16(BX), R9
	CMPQ R9, R10
	JA   other
	SUBQ R9, R10
	ADDQ R9, DI

	// R11: the segments that the starts of the first layer fill; R13: all segments.
	MOVL  (R8), R11
	TESTL R11, R11
	JZ    other
	LEAQ  (const_chunkStarts/const_width-1)(R11), R12
	SHRQ  $(const_chunkShift-6), R12
	ADDQ  R11, R12
	MOVL  (BX), R13
	CMPQ  R12, R13
	JA    other

	// AX: the bytes of the plane; R12: with those of the first layer's thresholds.
	MOVQ R13, AX
	SHLQ $5, AX
	LEAQ 7(R11), R12
	SHRQ $3, R12
	ADDQ AX, R12
	CMPQ R12, R10
	JA   other

	// They are quads.
	SHLQ    $6, R11
	MOVQ    R11, q-40(SP)
	MOVQ    DI, q_data-32(SP)
	DECQ    R13
	MOVQ    R13, q_count-24(SP)
	MOVL    $const_class0, CX
	MOVL    $const_bucketStarts, DX
	CMPB    11(BX), $1
	CMOVLEQ DX, CX
	MOVQ    CX, q_ask-16(SP)
	ADDQ    AX, DI
	MOVQ    DI, q_thresholds-8(SP)
	LEAQ    q-40(SP), DI
	ASK

done:
	MOVB R8, verdict+24(FP)
	RET

other:
	MOVB $const_Elsewhere, verdict+24(FP)
	RET

// FETCH asks for the memory of the quads at DI for the hash at BX.
#define FETCH \
	MOVQ       $const_mulStart, AX ; \
	IMULQ      (BX), AX ; \
	MULQ       quads_starts(DI) ; \
	MOVQ       DX, AX ; \
	SHRQ       $const_chunkShift, AX ; \
	MOVQ       DX, CX ; \
	SHRQ       $6, CX ; \
	ADDQ       CX, AX ; \
	SHLQ       $5, AX ; \
	ADDQ       quads_data(DI), AX ; \
	PREFETCHT0 0(AX) ; \
	PREFETCHT0 63(AX) ; \
	SHRQ       $9, DX ; \
	ADDQ       quads_thresholds(DI), DX ; \
	PREFETCHT0 (DX) ; \
	ADDQ       $8, BX

// AHEAD is how far probeMany asks for memory ahead of the probes: a processor has
// some ten cache misses under way at most.
#define AHEAD 12

// func probeMany(q *quads, hashes *uint64, verdicts *uint8, n int)
TEXT ·probeMany(SB), NOSPLIT, $16-32
	MOVQ q+0(FP), DI
	MOVQ hashes+8(FP), R14
	MOVQ verdicts+16(FP), R15
	MOVQ n+24(FP), AX
	LEAQ (R14)(AX*8), AX
	MOVQ AX, end-8(SP)
	MOVQ R14, BX
	LEAQ (AHEAD*8)(R14), R8
	CMPQ R8, AX
	CMOVQHI AX, R8

first:
	FETCH
	CMPQ BX, R8
	JB   first
	MOVQ BX, next-16(SP)

more:
	MOVQ next-16(SP), BX
	CMPQ BX, end-8(SP)
	JAE  fetched
	FETCH
	MOVQ BX, next-16(SP)

fetched:
	MOVQ (R14), SI
	ASK

done:
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
