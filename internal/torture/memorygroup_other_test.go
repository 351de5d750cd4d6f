//go:build !linux

package torture

import "errors"

type memoryGroup struct{}

func newMemoryGroup(int64) (*memoryGroup, error) { return nil, errors.ErrUnsupported }

func (*memoryGroup) join(int) error { return nil }
func (*memoryGroup) remove()        {}
