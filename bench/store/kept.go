package store

import (
	"encoding/json"
	"os"
)

// kept describes a database that is kept for a later run.
type kept struct {
	State    string `json:"state"`
	Changed  bool   `json:"changed,omitempty"`
	Inserted int    `json:"inserted,omitempty"`
}

// unknownState is the state of a database whose state is not recorded.
const unknownState = "existing"

func (s *session) notes() string { return s.dir() + ".json" }

// remember records the state of the database in a file beside its directory.
func (s *session) remember() error {
	note, err := json.Marshal(kept{s.state, s.changed, s.inserted})
	if err != nil {
		return err
	}
	return os.WriteFile(s.notes(), append(note, '\n'), 0o644)
}

// recall reads what an earlier run recorded.
func (s *session) recall() {
	k := kept{State: unknownState}
	if note, err := os.ReadFile(s.notes()); err == nil && json.Unmarshal(note, &k) != nil {
		k = kept{State: unknownState}
	}
	s.state, s.changed, s.inserted = k.State, k.Changed, k.Inserted
}
