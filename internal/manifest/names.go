// Package manifest keeps track of the tables of a database: edits and versions, the MANIFEST that
// records them, CURRENT, which names the MANIFEST, and the names of all files.
package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// FileKind is a kind of file in the directory of a database.
type FileKind int

// The files of a database. N is the file number, in decimal with at least six digits.
const (
	KindCurrent   FileKind = iota // CURRENT: names the MANIFEST in use
	KindLock                      // LOCK: held while the database is open
	KindInfoLog                   // LOG and LOG.old: messages for people
	KindManifest                  // MANIFEST-N
	KindLog                       // N.log: a write-ahead log
	KindTable                     // N.ldb: a table
	KindTableSST                  // N.sst: a table under its old name; only read
	KindTemp                      // N.dbtmp: a file being written
	KindFilterKey                 // FILTERKEY: the secret of keyed filters
)

// Repairable reports whether Repair replaces files of this kind: all those with a number.
func (k FileKind) Repairable() bool {
	switch k {
	case KindManifest, KindLog, KindTable, KindTableSST, KindTemp:
		return true
	}
	return false
}

// MakeName returns the base name of a file; num is ignored for kinds without a number.
func MakeName(kind FileKind, num uint64) string {
	switch kind {
	case KindCurrent:
		return "CURRENT"
	case KindLock:
		return "LOCK"
	case KindInfoLog:
		return "LOG"
	case KindFilterKey:
		return "FILTERKEY"
	case KindManifest:
		return fmt.Sprintf("MANIFEST-%06d", num)
	case KindLog:
		return fmt.Sprintf("%06d.log", num)
	case KindTable:
		return fmt.Sprintf("%06d.ldb", num)
	case KindTableSST:
		return fmt.Sprintf("%06d.sst", num)
	case KindTemp:
		return fmt.Sprintf("%06d.dbtmp", num)
	}
	panic(fmt.Sprintf("manifest: no file kind %d", kind))
}

// ParseName splits the base name of a file. ok is false if it does not name a database file.
func ParseName(name string) (kind FileKind, num uint64, ok bool) {
	switch name {
	case "CURRENT":
		return KindCurrent, 0, true
	case "LOCK":
		return KindLock, 0, true
	case "LOG", "LOG.old":
		return KindInfoLog, 0, true
	case "FILTERKEY":
		return KindFilterKey, 0, true
	}
	if digits, found := strings.CutPrefix(name, "MANIFEST-"); found {
		num, ok = parseNum(digits)
		return KindManifest, num, ok
	}
	digits, ext, _ := strings.Cut(name, ".")
	switch ext {
	case "log":
		kind = KindLog
	case "ldb":
		kind = KindTable
	case "sst":
		kind = KindTableSST
	case "dbtmp":
		kind = KindTemp
	default:
		return 0, 0, false
	}
	num, ok = parseNum(digits)
	return kind, num, ok
}

// parseNum accepts digits only: no sign, no empty string, no number out of range.
func parseNum(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n <= maxFileNum
}
