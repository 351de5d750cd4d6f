package redisfilter

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"
	"github.com/redis/go-redis/v9"
)

// RedissonOptions are the parameters of a Redisson filter. With Items, the filter is created
// as by RBloomFilter.tryInit if it does not exist, and an existing one must have the size and
// hashes that follow from Items and FPR. Without Items, it must exist.
type RedissonOptions[T any] struct {
	// Items is the number of elements up to which FPR holds.
	Items uint64
	// FPR is the false positive rate with Items elements.
	FPR float64
	// OldConfig writes the FPR as Redisson before 3.30 does, 0.000010 instead of
	// 1.0E-5. Both can be read.
	OldConfig bool
	// RetryFor is how long a failing operation is retried; see Options.
	RetryFor time.Duration
	// Observe, if not nil, receives each operation; see Trip.
	Observe func(Trip)
	// Codec appends an element as Redisson's codec encodes it. If it is nil, strings, byte slices
	// and integers are encoded as by StringCodec, ByteArrayCodec and LongCodec (or IntegerCodec):
	// as their bytes, or decimal text. It is required for uint, uint64 and uintptr, which may not
	// fit in a Java long. Redisson's default codecs, Kryo and JBoss Marshalling, are not supported:
	// set one of these in Java.
	Codec func(dst []byte, v T) []byte
}

// Redisson is an RBloomFilter of the Java client Redisson, 3.23 or later: the same two
// keys, for programs in both languages. (Clients before 3.23 ignore the last bit of an
// element; elements that they have added are not found.)
//
// The two keys are in one slot, and so on one node. Each addition and each lookup is a script,
// which also checks that the configuration is the one that this client has read; if not, it returns
// ErrIncompatible, or ErrMissing if there is none, where a Java client returns false. To replace a
// filter with one of another size, use a new name.
type Redisson[T any] struct {
	codec  func(dst []byte, v T) []byte
	name   string
	sender *sender
	size   uint64
	hashes int
}

var _ Filter[string] = (*Redisson[string])(nil)

// The keys and fields of an RBloomFilter NAME are
//
//	NAME                      a string, the bits, bit 0 the highest of byte 0
//	{NAME}:config             a hash; NAME:config if NAME has a {
//	  size                    number of bits, 1 to 4294967294
//	  hashIterations          bits that an element sets
//	  expectedInsertions
//	  falseProbability        0.00001 as 0.000010 until Redisson 3.29, 1.0E-5 since 3.30
//
// size is -n ln p / (ln 2)², rounded down, and hashIterations is size/n × ln 2, rounded to nearest,
// at least 1. Bit i of an element is h mod 2⁶³ mod size. Initially h is the first half of
// HighwayHash-128 of the encoded element. After an even i the second half is added to h, after an
// odd i the first half.
//
// A filter for 1,000 elements at 1% has size 9585 and 7 bits per element.
const maxRedissonBits = 2 * math.MaxInt32

// redissonKey is Redisson's key for HighwayHash, four little-endian numbers.
var redissonKey = func() []byte {
	var b []byte
	for _, v := range [...]uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}()

func redissonConfigKey(name string) string {
	if strings.Contains(name, "{") {
		return name + ":config"
	}
	return "{" + name + "}:config"
}

// redissonSize returns the number of bits, and of bits per element.
func redissonSize(items uint64, fpr float64) (size uint64, hashes int, err error) {
	if items > math.MaxInt64 || !(fpr >= 0 && fpr <= 1) {
		return 0, 0, optionError("Items and FPR", "%d and %v are out of range", items, fpr)
	}
	ln := math.Log(fpr)
	if fpr == 0 { // Redisson uses Double.MIN_VALUE
		ln = -1074 * math.Ln2
	}
	bits := -float64(items) * ln / (math.Ln2 * math.Ln2)
	if !(bits >= 1 && bits < maxRedissonBits+1) {
		return 0, 0, optionError("Items and FPR", "%d and %v need %.0f bits; 1 to %d are possible", items, fpr, math.Floor(bits), uint64(maxRedissonBits))
	}
	size = uint64(bits)
	return size, max(1, int(math.Floor(float64(size)/float64(items)*math.Ln2+0.5))), nil
}

// appendRedissonBits appends the positions of the bits of an encoded element.
func appendRedissonBits(dst []uint64, encoded []byte, size uint64, hashes int) []uint64 {
	sum := highwayhash.Sum128(encoded, redissonKey)
	a, b := binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])
	h := a
	for i := range hashes {
		dst = append(dst, h&math.MaxInt64%size)
		if i%2 == 0 {
			h += b
		} else {
			h += a
		}
	}
	return dst
}

// javaDouble formats a number as Java's Double.toString does.
func javaDouble(v float64) string {
	if v == 0 || v >= 1e-3 && v < 1e7 {
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent) // without + and leading zeros
	return mantissa + "E" + strconv.Itoa(n)
}

// javaDecimal formats a number as BigDecimal.valueOf(v).toPlainString() does: with all digits
// of Double.toString, including trailing zeros.
func javaDecimal(v float64) string {
	mantissa, exponent, ok := strings.Cut(javaDouble(v), "E")
	if !ok {
		return mantissa
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	n, _ := strconv.Atoi(exponent)
	return strconv.FormatFloat(v, 'f', max(0, len(fraction)-n), 64)
}

// OpenRedisson opens the filter with the given name. If it does not exist, OpenRedisson creates
// it if RedissonOptions.Items is set, and otherwise returns ErrMissing.
func OpenRedisson[T any](ctx context.Context, client redis.UniversalClient, name string, o RedissonOptions[T]) (*Redisson[T], error) {
	s, err := newSender(client, 0, 0, o.RetryFor, o.Observe)
	if err != nil {
		return nil, err
	}
	f := &Redisson[T]{codec: o.Codec, name: name, sender: s}
	if f.codec == nil {
		if f.codec = redissonCodec[T](); f.codec == nil {
			return nil, optionError("Codec", "is missing: elements of type %v need one", reflect.TypeFor[T]())
		}
	}
	if o.Items != 0 {
		if err := f.tryInit(ctx, &o); err != nil {
			return nil, err
		}
	}
	return f, f.load(ctx)
}

// initScript writes a configuration if there is none.
const initScript = `
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1`

func (f *Redisson[T]) tryInit(ctx context.Context, o *RedissonOptions[T]) error {
	var err error
	if f.size, f.hashes, err = redissonSize(o.Items, o.FPR); err != nil {
		return err
	}
	fpr := javaDouble(o.FPR)
	if o.OldConfig {
		fpr = javaDecimal(o.FPR)
	}
	return f.sender.send(ctx, true, eval(redissonConfigKey(f.name), initScript, "size", f.size, "hashIterations", f.hashes,
		"expectedInsertions", o.Items, "falseProbability", fpr))
}

// load reads the configuration. If the options give the parameters, they must be the same.
func (f *Redisson[T]) load(ctx context.Context) error {
	key := redissonConfigKey(f.name)
	r := &request{key: key, args: []any{"hgetall", key}}
	if err := f.sender.send(ctx, false, r); err != nil {
		return err
	}
	fields, err := pairs(r.reply)
	if err != nil {
		return err
	}
	if len(fields) == 0 {
		return fmt.Errorf("%w: %q", ErrMissing, f.name)
	}
	size, hashes, err := decodeRedisson(fields)
	switch {
	case err != nil:
		return fmt.Errorf("key %q: %w", key, err)
	case f.size != 0 && f.size != size:
		return incompatible("size", f.size, size)
	case f.hashes != 0 && f.hashes != hashes:
		return incompatible("hashIterations", f.hashes, hashes)
	}
	f.size, f.hashes = size, hashes
	return nil
}

func decodeRedisson(fields map[string]string) (size uint64, hashes int, err error) {
	n := newNumbers(func(name string) string { return fields[name] })
	size = n.get("size", 10, maxRedissonBits)
	hashes = int(n.get("hashIterations", 10, 1<<12))
	n.get("expectedInsertions", 10, math.MaxInt64)
	n.float("falseProbability")
	if n.err == nil && (size < 1 || hashes < 1) {
		n.err = formatError("size %d, hashIterations %d", size, hashes)
	}
	return size, hashes, n.err
}

// redissonCodec returns a function that encodes a T as StringCodec, ByteArrayCodec or LongCodec
// does, nil if there is none.
func redissonCodec[T any]() func(dst []byte, v T) []byte {
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.String:
		return func(dst []byte, v T) []byte { return append(dst, reflect.ValueOf(v).String()...) }
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return func(dst []byte, v T) []byte { return append(dst, reflect.ValueOf(v).Bytes()...) }
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(dst []byte, v T) []byte { return strconv.AppendInt(dst, reflect.ValueOf(v).Int(), 10) }
	case reflect.Uint8, reflect.Uint16, reflect.Uint32: // uint64 may not fit in a Java long
		return func(dst []byte, v T) []byte { return strconv.AppendUint(dst, reflect.ValueOf(v).Uint(), 10) }
	}
	return nil
}

// The scripts check the configuration, and then set or get ARGV[2] bits for each element.
const (
	redissonCheck = `
local c = redis.call('HMGET', KEYS[1], 'size', 'hashIterations')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then
  return redis.error_reply('SIFTCONFIG ' .. tostring(c[1]) .. ' ' .. tostring(c[2]))
end
local k, out = tonumber(ARGV[2]), {}
`
	redissonAdd = redissonCheck + `
for i = 3, #ARGV, k do
  local new = 0
  for j = i, i + k - 1 do
    if redis.call('SETBIT', KEYS[2], ARGV[j], 1) == 0 then new = 1 end
  end
  out[#out + 1] = new
end
return out`
	redissonHas = redissonCheck + `
for i = 3, #ARGV, k do
  local has = 1
  for j = i, i + k - 1 do
    if redis.call('GETBIT', KEYS[2], ARGV[j]) == 0 then has = 0 break end
  end
  out[#out + 1] = has
end
return out`
)

// redissonBatch is the number of elements that one script handles.
const redissonBatch = 64

// run runs a script for some elements and returns a number for each.
func (f *Redisson[T]) run(ctx context.Context, write bool, script string, vs []T, out []bool) error {
	key := redissonConfigKey(f.name)
	args := make([]any, 0, 7+len(vs)*f.hashes)
	args = append(args, "eval", script, 2, key, f.name, f.size, f.hashes)
	var buf []byte
	var bits []uint64
	for _, v := range vs {
		buf = f.codec(buf[:0], v)
		bits = appendRedissonBits(bits[:0], buf, f.size, f.hashes)
		for _, b := range bits {
			args = append(args, b)
		}
	}
	r := &request{key: key, args: args}
	err := f.sender.send(ctx, write, r)
	if err != nil && redis.HasErrorPrefix(r.err, "SIFTCONFIG") {
		there := strings.TrimPrefix(r.err.Error(), "SIFTCONFIG ")
		if there == "false false" {
			return fmt.Errorf("%w: %q", ErrMissing, f.name)
		}
		return incompatible("size and hashIterations", fmt.Sprint(f.size, " ", f.hashes), there)
	}
	if err != nil {
		return err
	}
	reply, ok := r.reply.([]any)
	if !ok || len(reply) != len(vs) {
		return formatError("reply of type %T to the script", r.reply)
	}
	for i := range out {
		out[i] = reply[i] == int64(1)
	}
	return nil
}

// Add adds an element and reports whether it was new.
func (f *Redisson[T]) Add(ctx context.Context, v T) (bool, error) {
	var isNew [1]bool
	err := f.run(ctx, true, redissonAdd, []T{v}, isNew[:])
	return isNew[0], err
}

// AddMany adds elements; see Filter.
func (f *Redisson[T]) AddMany(ctx context.Context, vs []T, isNew []bool) error {
	return inBatches(vs, isNew, redissonBatch, func(vs []T, isNew []bool) error {
		return f.run(ctx, true, redissonAdd, vs, isNew)
	})
}

// MayContain reports false only if the element was not added.
func (f *Redisson[T]) MayContain(ctx context.Context, v T) (bool, error) {
	var positive [1]bool
	err := f.MayContainMany(ctx, []T{v}, positive[:])
	return positive[0], err
}

// MayContainMany looks up elements; see Filter.
func (f *Redisson[T]) MayContainMany(ctx context.Context, vs []T, positive []bool) error {
	return inBatches(vs, positive[:len(vs)], redissonBatch, func(vs []T, positive []bool) error {
		err := f.run(ctx, false, redissonHas, vs, positive)
		if err != nil {
			setAll(positive)
		}
		return err
	})
}

// ApproxCount estimates how many different elements were added, as RBloomFilter.count does. It
// does not check the configuration.
func (f *Redisson[T]) ApproxCount(ctx context.Context) (uint64, error) {
	r := &request{key: f.name, args: []any{"bitcount", f.name}}
	if err := f.sender.send(ctx, false, r); err != nil {
		return 0, err
	}
	ones, _ := r.reply.(int64)
	m := float64(f.size)
	n := -m / float64(f.hashes) * math.Log1p(-float64(ones)/m)
	if !(n < math.MaxInt64) {
		return math.MaxUint64, nil
	}
	return uint64(math.Floor(n + 0.5)), nil
}

// Bits is the number of bits of the filter.
func (f *Redisson[T]) Bits() uint64 { return f.size }

// Hashes is the number of bits that an element sets.
func (f *Redisson[T]) Hashes() int { return f.hashes }
