// Package funnel encodes and hashes elements of any type, without allocating for strings,
// byte slices and integers.
package funnel

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/twmb/murmur3"
)

// Kind is how elements are encoded. It is stored with saved filters, so that a filter of
// strings is not used for integers. On disk; do not change.
type Kind uint8

const (
	Custom Kind = 0 // bytes appended by a caller's function
	Bytes  Kind = 1 // the bytes of a string or byte slice, without its length
	Int8   Kind = 2 // one byte
	Int16  Kind = 3 // two bytes, little-endian
	Int32  Kind = 4 // four bytes, little-endian: Guava's integerFunnel
	Int64  Kind = 5 // eight bytes, little-endian: Guava's longFunnel; int and uint on every machine
)

// String names the kind for error texts.
func (k Kind) String() string {
	switch k {
	case Custom:
		return "custom"
	case Bytes:
		return "bytes"
	case Int8, Int16, Int32, Int64:
		return fmt.Sprintf("%d-bit integers", 8<<(k-Int8))
	}
	return fmt.Sprintf("unknown kind %d", uint8(k))
}

// Key hashes elements of one type. The zero Key is not usable; make it with For.
type Key[T any] struct {
	how    reflect.Kind // of T; Invalid for a custom funnel
	kind   Kind
	append func(dst []byte, v T) []byte
}

// For returns the key of T. With a nil funnel, T must be a string, a byte slice
// or an integer, or a type defined as one.
func For[T any](funnel func(dst []byte, v T) []byte) (Key[T], error) {
	if funnel != nil {
		return Key[T]{append: funnel}, nil
	}
	t := reflect.TypeFor[T]()
	k := Key[T]{how: t.Kind()}
	switch t.Kind() {
	case reflect.String:
		k.kind = Bytes
		return k, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			k.kind = Bytes
			return k, nil
		}
	case reflect.Int8, reflect.Uint8:
		k.kind = Int8
		return k, nil
	case reflect.Int16, reflect.Uint16:
		k.kind = Int16
		return k, nil
	case reflect.Int32, reflect.Uint32:
		k.kind = Int32
		return k, nil
	case reflect.Int64, reflect.Uint64, reflect.Int, reflect.Uint, reflect.Uintptr:
		k.kind = Int64
		return k, nil
	}
	return Key[T]{}, fmt.Errorf("elements of type %v need a Funnel", t)
}

// Ready makes the zero Key the key of T without a funnel. It does not change a Key that
// For has made.
func (k *Key[T]) Ready() (err error) {
	if k.how == reflect.Invalid && k.append == nil {
		*k, err = For[T](nil)
	}
	return err
}

// Kind returns how elements are encoded.
func (k *Key[T]) Kind() Kind { return k.kind }

// Append appends the bytes of v to dst.
func (k *Key[T]) Append(dst []byte, v T) []byte {
	switch k.how {
	case reflect.Invalid:
		return k.append(dst, v)
	case reflect.String:
		return append(dst, *(*string)(unsafe.Pointer(&v))...)
	case reflect.Slice:
		return append(dst, *(*[]byte)(unsafe.Pointer(&v))...)
	}
	var buf [8]byte
	return append(dst, k.integer(&buf, v)...)
}

// sum64Slow is Sum64 for types other than strings and byte slices.
func (k *Key[T]) sum64Slow(v T) uint64 {
	switch k.how {
	case reflect.Int64, reflect.Uint64:
		return sum64Of8(*(*uint64)(unsafe.Pointer(&v)))
	case reflect.Invalid:
		p := buffers.Get().(*[]byte)
		b := k.append((*p)[:0], v)
		h := sum64(b)
		*p = b[:0]
		buffers.Put(p)
		return h
	}
	var buf [8]byte
	return sum64(k.integer(&buf, v))
}

// Sum128 is MurmurHash3 x64 128, seed 0, of the bytes of v, as in Guava.
func (k *Key[T]) Sum128(v T) (uint64, uint64) {
	switch k.how {
	case reflect.String:
		return murmur3.StringSum128(*(*string)(unsafe.Pointer(&v)))
	case reflect.Slice:
		return murmur3.Sum128(*(*[]byte)(unsafe.Pointer(&v)))
	case reflect.Invalid:
		p := buffers.Get().(*[]byte)
		b := k.append((*p)[:0], v)
		h1, h2 := murmur3.Sum128(b)
		*p = b[:0]
		buffers.Put(p)
		return h1, h2
	}
	var buf [8]byte
	return murmur3.Sum128(k.integer(&buf, v))
}

// integer encodes v, an integer, into buf.
func (k *Key[T]) integer(buf *[8]byte, v T) []byte {
	p := unsafe.Pointer(&v)
	switch k.how {
	case reflect.Int8, reflect.Uint8:
		buf[0] = *(*uint8)(p)
		return buf[:1]
	case reflect.Int16, reflect.Uint16:
		binary.LittleEndian.PutUint16(buf[:], *(*uint16)(p))
		return buf[:2]
	case reflect.Int32, reflect.Uint32:
		binary.LittleEndian.PutUint32(buf[:], *(*uint32)(p))
		return buf[:4]
	case reflect.Int: // sign-extended where int has 32 bits
		binary.LittleEndian.PutUint64(buf[:], uint64(*(*int)(p)))
	case reflect.Uint, reflect.Uintptr:
		binary.LittleEndian.PutUint64(buf[:], uint64(*(*uint)(p)))
	default:
		binary.LittleEndian.PutUint64(buf[:], *(*uint64)(p))
	}
	return buf[:]
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64); return &b }}
