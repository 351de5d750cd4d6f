// Package interop has other engines read databases that sift wrote. It is a
// module of its own, so that users of sift do not depend on those engines.
package interop
