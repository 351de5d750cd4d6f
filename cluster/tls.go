package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
)

// TLS encrypts the connections of a Mux, with mutual authentication: a client needs a certificate
// signed by Authority, and a server one that also names the host of its address.
type TLS struct {
	// Certificate is the node's certificate, as a server and as a client. Its extended key usages,
	// if it has any, must allow both.
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

// check returns an error if other nodes would reject this node's certificate at an address.
func (t *TLS) check(addr string) error {
	leaf, err := x509.ParseCertificate(t.Certificate.Certificate[0])
	if err != nil {
		return err
	}
	o := x509.VerifyOptions{Roots: t.Authority, Intermediates: x509.NewCertPool()}
	for _, der := range t.Certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			o.Intermediates.AddCert(c)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		o.KeyUsages = []x509.ExtKeyUsage{usage}
		if _, err := leaf.Verify(o); err != nil {
			return err
		}
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	return leaf.VerifyHostname(host)
}
