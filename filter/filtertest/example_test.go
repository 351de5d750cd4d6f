package filtertest_test

import (
	"fmt"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

// violations is a TB, as is a *testing.T.
type violations int

func (v *violations) Helper()               {}
func (v *violations) Logf(string, ...any)   {}
func (v *violations) Errorf(string, ...any) { *v++ }

// In a test, pass its t:
//
//	func TestMyPolicy(t *testing.T) { filtertest.Run(t, mine.Policy()) }
func ExampleRunWith() {
	var n violations
	filtertest.RunWith(&n, filter.Bloom(10), filtertest.Options{MaxKeys: 1000})
	fmt.Println(n, "violations")
	// Output: 0 violations
}

// RunRange tests a range policy in the same way:
//
//	func TestMyRangePolicy(t *testing.T) { filtertest.RunRange(t, mine.RangePolicy()) }
func ExampleRunRangeWith() {
	var n violations
	filtertest.RunRangeWith(&n, filter.Range(12, 0), filtertest.Options{MaxKeys: 1000})
	fmt.Println(n, "violations")
	// Output: 0 violations
}
