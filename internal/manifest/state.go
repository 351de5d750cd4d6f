package manifest

// State is the contents of a MANIFEST.
type State struct {
	Version *Version
	// Deep is nil unless there are tables in a level beyond those of a Version. Then it lists the
	// levels >= 1 that have tables, upper ones first, and Version is read-only: it has all
	// tables, and a search from level 0 down, each level in its order, finds newer entries first.
	Deep []DeepLevel

	LogNumber  uint64 // older logs hold nothing that the tables lack
	PrevLogNum uint64 // an older log that is needed nevertheless; 0: none
	NextFile   uint64 // above every file number that the MANIFEST mentions
	// LastSeq is a sequence number that was in use when the MANIFEST was written. LevelDB may
	// have written one that the live log also holds, so replay skips no entries because of it.
	LastSeq  uint64
	Pointers [NumLevels][]byte // where the next compaction of a level begins; nil: at its start

	Num uint64 // the MANIFEST's own number
	// Dropped says why the end of the MANIFEST was treated as an edit cut short by a crash and
	// omitted; nil if it was not.
	Dropped error
}

// DeepLevel is one level of a tree that may have more than NumLevels.
type DeepLevel struct {
	Level  int
	Tables []*TableMeta // in the order of a Version's level
}

// NewState returns the state of a database without files.
func NewState() *State { return &State{Version: new(Version), NextFile: 1} }

// snapshot returns an edit that creates the state from nothing.
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
