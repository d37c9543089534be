package natsd

import (
	"crypto/subtle"
	"encoding/base64"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
)

// revokedWithin is how long a connection may outlive its credential.
const revokedWithin = time.Second

// A gatekeeper decides which clients are let in, and into which account. It looks
// at the files each time, so a new credential needs no notice to the server.
type gatekeeper struct {
	cfg Config
	srv *server.Server
}

// Check implements the server's interface for that.
func (g *gatekeeper) Check(c server.ClientAuthentication) bool {
	if c.Kind() != server.CLIENT {
		return false
	}
	opts := c.GetOpts()
	if opts.Nkey == "" {
		same := subtle.ConstantTimeCompare([]byte(opts.Username), []byte(g.cfg.User)) & subtle.ConstantTimeCompare([]byte(opts.Password), []byte(g.cfg.Password))
		return same == 1 && g.register(c, Credential{Role: jobs.RoleOperator, Key: g.cfg.User})
	}
	held, err := credential(g.cfg.StoreDir, opts.Nkey)
	if err != nil || !signed(c, opts) {
		return false
	}
	return g.register(c, held)
}

// signed reports whether the client has the secret half of its key.
func signed(c server.ClientAuthentication, opts *server.ClientOpts) bool {
	sig, err := base64.RawURLEncoding.DecodeString(opts.Sig)
	if err != nil {
		sig, err = base64.StdEncoding.DecodeString(opts.Sig)
	}
	key, keyErr := nkeys.FromPublicKey(opts.Nkey)
	nonce := c.GetNonce()
	return err == nil && keyErr == nil && len(nonce) > 0 && key.Verify(nonce, sig) == nil
}

func (g *gatekeeper) register(c server.ClientAuthentication, held Credential) bool {
	account, err := g.srv.LookupAccount(access.Account(held.Role))
	if err != nil {
		return false
	}
	user := &server.User{Username: held.Key, Account: account}
	if !held.Role.All() {
		rights, err := g.cfg.Layout.Rights(held.Role, held.Key)
		if err != nil {
			return false
		}
		user.Permissions = &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: rights.Publish},
			Subscribe: &server.SubjectPermission{Allow: rights.Subscribe},
		}
		if rights.Answers {
			user.Permissions.Response = &server.ResponsePermission{MaxMsgs: access.Answers, Expires: access.AnswerWithin}
		}
	}
	c.RegisterUser(user)
	return true
}

// watchRevoked ends the connections of credentials that are gone.
func (s *Server) watchRevoked() {
	tick := time.NewTicker(revokedWithin)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.endRevoked()
		}
	}
}

func (s *Server) endRevoked() {
	for offset := 0; ; {
		page, err := s.server().Connz(&server.ConnzOptions{Username: true, Offset: offset, Limit: 1024})
		if err != nil || len(page.Conns) == 0 {
			return
		}
		for _, c := range page.Conns {
			if !nkeys.IsValidPublicUserKey(c.AuthorizedUser) {
				continue
			}
			if _, err := credential(s.cfg.StoreDir, c.AuthorizedUser); err != nil {
				s.cfg.Logger.Info("ended a connection whose credential was revoked", "key", c.AuthorizedUser)
				_ = s.server().DisconnectClientByID(c.Cid) // it may have gone by itself
			}
		}
		offset += len(page.Conns)
	}
}
