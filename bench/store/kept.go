package store

import (
	"encoding/json"
	"os"
)

// kept is what a later run needs to know of a database that stays.
type kept struct {
	State    string `json:"state"`
	Changed  bool   `json:"changed,omitempty"`
	Inserted int    `json:"inserted,omitempty"`
}

// unknownState is that of a database of which nothing was noted.
const unknownState = "existing"

func (s *session) notes() string { return s.dir() + ".json" }

// remember notes what the database holds beside its directory.
func (s *session) remember() error {
	note, err := json.Marshal(kept{s.state, s.changed, s.inserted})
	if err != nil {
		return err
	}
	return os.WriteFile(s.notes(), append(note, '\n'), 0o644)
}

// recall takes over what an earlier run has noted.
func (s *session) recall() {
	k := kept{State: unknownState}
	if note, err := os.ReadFile(s.notes()); err == nil && json.Unmarshal(note, &k) != nil {
		k = kept{State: unknownState}
	}
	s.state, s.changed, s.inserted = k.State, k.Changed, k.Inserted
}
