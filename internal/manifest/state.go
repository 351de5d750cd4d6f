package manifest

// State is all that a MANIFEST says.
type State struct {
	Version *Version
	// Deep is nil unless there are tables in a level beyond the last of a Version. Then
	// it lists the levels >= 1 that have tables, upper ones first, and Version is for
	// reading alone: it has all tables, and whoever searches it from level 0 down, each
	// level in its order, finds newer entries first.
	Deep []DeepLevel

	LogNumber  uint64 // logs before it hold nothing that the tables lack
	PrevLogNum uint64 // a log that counts nevertheless; 0 for none
	NextFile   uint64 // above every file number that the MANIFEST mentions
	// LastSeq is a sequence number that was in use when the MANIFEST was
	// written. LevelDB may have stamped it with one that the live log holds, so
	// logs are replayed without looking at it.
	LastSeq  uint64
	Pointers [NumLevels][]byte // where compactions of a level go on; nil for the beginning

	Num uint64 // the MANIFEST's own number
	// Dropped says why the end of the MANIFEST was taken for an edit that a
	// crash cut short, and left out; nil if it was not.
	Dropped error
}

// DeepLevel is one level of a tree that may have more than NumLevels.
type DeepLevel struct {
	Level  int
	Tables []*TableMeta // without overlap, by Smallest
}

// NewState returns the state of a database without files.
func NewState() *State { return &State{Version: new(Version), NextFile: 1} }

// snapshot returns an edit that makes the state out of nothing.
func (s *State) snapshot() *Edit {
	name := comparatorName
	e := &Edit{Comparator: &name, LogNumber: &s.LogNumber, PrevLogNum: &s.PrevLogNum, NextFile: &s.NextFile, LastSeq: &s.LastSeq}
	for level, key := range s.Pointers {
		if key != nil {
			e.Pointers = append(e.Pointers, Pointer{level, key})
		}
	}
	for level, tables := range s.Version.Levels {
		for _, t := range tables {
			e.Added = append(e.Added, AddedTable{level, t})
		}
	}
	return e
}
