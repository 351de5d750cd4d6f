package vfstest

import "fmt"

// OpKind is the kind of an operation on a file system.
type OpKind uint8

// The operations: those of FS, those of File, and the release of a lock.
const (
	OpCreate OpKind = iota
	OpOpen
	OpRemove
	OpRename
	OpLink
	OpMkdirAll
	OpList
	OpSize
	OpSyncDir
	OpLock
	OpUnlock
	OpWrite
	OpReadAt
	OpSync
	OpSyncLost // only in a Mem's list: a Sync that failed and lost the data
	OpClose
)

var opNames = [...]string{"create", "open", "remove", "rename", "link", "mkdir", "list", "size",
	"sync-dir", "lock", "unlock", "write", "read", "sync", "sync-lost", "close"}

// String returns the kind's name in lower case.
func (k OpKind) String() string { return opNames[k] }

// Op is one operation on a file system.
type Op struct {
	Index int // the number of operations before it
	Kind  OpKind
	Name  string // the file or directory
	To    string // the new name, for OpRename and OpLink
	Off   int64  // where the operation begins, for OpReadAt, and for OpWrite where it is known
	Len   int    // its length in bytes, for OpReadAt and OpWrite
	Err   error  // its error, if Failed returns it
}

// String returns the operation on one line, "12 write db/000003.log 7+100" for
// example.
func (o Op) String() string {
	s := fmt.Sprintf("%d %v %s", o.Index, o.Kind, o.Name)
	switch o.Kind {
	case OpRename, OpLink:
		s += " to " + o.To
	case OpReadAt, OpWrite:
		s += fmt.Sprintf(" %d+%d", o.Off, o.Len)
	}
	return s
}
