// Package engines damages databases of other engines in the same ways as package torture damages
// sift's, and prints what they return next to what sift returns. It is a separate module, so that
// users of sift do not depend on those engines.
//
//	cd internal/torture/engines && go test -v -run Damage          # one mask
//	cd internal/torture/engines && go test -v -run Damage -masks 4
package engines
