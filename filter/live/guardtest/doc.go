// Package guardtest tests live.Guard with a real Redis and a real PostgreSQL, which the test
// starts. It is a separate module, so that programs that use the filters do not depend on
// the drivers.
//
//	go test -v .                            # 100,000 lookups
//	go test -v . -guardtest.lookups 1000000
package guardtest
