//go:build !linux

package memory

type group struct{}

func newGroup(int64) (*group, error) { return nil, errNoGroups }

func (*group) join(int) error { return errNoGroups }
func (*group) remove() error  { return nil }
func (*group) reads() int64   { return -1 }
func (*group) peak() int64    { return -1 }

type usage struct{ cpu, readBytes, faults int64 }

func used() usage { return usage{} }

func footprint() (resident, anonymous int64) { return 0, 0 }

func dropPages(string) error { return nil }
