// Package guardtest puts live.Guard in front of a real Redis and a real PostgreSQL,
// both started by the test, as an application would. It is a module of its own, so
// that who embeds the filters inherits no driver.
//
//	go test -v .                            # 100,000 lookups
//	go test -v . -guardtest.lookups 1000000
package guardtest
