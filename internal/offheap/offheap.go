// Package offheap allocates memory outside Go's heap, on Linux. The garbage collector neither frees
// it nor lets the heap grow by as much again before it runs.
package offheap
