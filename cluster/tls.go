package cluster

import (
	"crypto/tls"
	"crypto/x509"
)

// TLS encrypts the connections of a Mux, with mutual authentication: a client needs a certificate
// signed by Authority, and a server one that also names the host of its address.
type TLS struct {
	// Certificate is the node's certificate, as a server and as a client.
	Certificate tls.Certificate
	// Authority signs the nodes' certificates. It should sign no others: whoever has
	// one can connect as a node.
	Authority *x509.CertPool
}

// configs returns the configurations that a node uses as a server and as a client.
func (t *TLS) configs() (server, client *tls.Config) {
	certs := []tls.Certificate{t.Certificate}
	return &tls.Config{Certificates: certs, ClientCAs: t.Authority, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13},
		&tls.Config{Certificates: certs, RootCAs: t.Authority, MinVersion: tls.VersionTLS13}
}
