package cluster

import (
	"crypto/tls"
	"crypto/x509"
)

// TLS encrypts the connections of a Mux, with mutual authentication: a connection is accepted
// from whoever has a certificate of the authority, and made to a node whose certificate names the
// host of its address.
type TLS struct {
	// Certificate is the node's, as a server and as a client.
	Certificate tls.Certificate
	// Authority signs the nodes' certificates. It should sign no others: whoever has
	// one is a member.
	Authority *x509.CertPool
}

// configs returns what a node uses as a server and as a client.
func (t *TLS) configs() (server, client *tls.Config) {
	own := []tls.Certificate{t.Certificate}
	return &tls.Config{Certificates: own, ClientCAs: t.Authority, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13},
		&tls.Config{Certificates: own, RootCAs: t.Authority, MinVersion: tls.VersionTLS13}
}
