package receipt

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// PayloadType says that an envelope has a statement of in-toto.
const PayloadType = "application/vnd.in-toto+json"

// An envelope is DSSE's.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// keyPrefix begins the id of a key, which is the public key itself: so an envelope can be
// checked by itself, and whoever knows the worker's key compares it.
const keyPrefix = "ed25519:"

// KeyID is the name of a public key in receipts.
func KeyID(key ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseKeyID is the inverse of KeyID.
func ParseKeyID(id string) (ed25519.PublicKey, error) {
	text, ok := strings.CutPrefix(id, keyPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q is not an ed25519 key", id)
	}
	return key, nil
}

// signed is what a signature is over: DSSE's pre-authentication encoding.
func signed(kind string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload)
}

// seal signs a payload and puts both in an envelope.
func seal(key ed25519.PrivateKey, payload []byte) ([]byte, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the key has no public half")
	}
	return envelope{
		PayloadType: PayloadType, Payload: payload,
		Signatures: []signature{{KeyID(public), ed25519.Sign(key, signed(PayloadType, payload))}},
	}.encode()
}

func (e envelope) encode() ([]byte, error) {
	data, err := json.Marshal(e)
	return append(data, '\n'), err
}

// unseal returns the payload of an envelope and the key that has signed it. There is one text
// for an envelope: another one of the same meaning is refused, so that no byte of
// a receipt can be changed.
func unseal(data []byte) ([]byte, ed25519.PublicKey, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, nil, &InvalidError{"envelope", "is not JSON as a worker writes it: " + err.Error()}
	}
	again, err := e.encode()
	if err != nil {
		return nil, nil, &InvalidError{"envelope", err.Error()}
	}
	if at := differ(data, again); at >= 0 {
		return nil, nil, &InvalidError{"envelope", fmt.Sprintf("differs from what a worker writes, at byte %d", at)}
	}
	if e.PayloadType != PayloadType {
		return nil, nil, &InvalidError{"payload type", fmt.Sprintf("is %q, not %s", e.PayloadType, PayloadType)}
	}
	if len(e.Signatures) != 1 {
		return nil, nil, &InvalidError{"envelope", fmt.Sprintf("has %d signatures, not 1", len(e.Signatures))}
	}
	key, err := ParseKeyID(e.Signatures[0].KeyID)
	if err != nil {
		return nil, nil, &InvalidError{"key", err.Error()}
	}
	if !ed25519.Verify(key, signed(e.PayloadType, e.Payload), e.Signatures[0].Sig) {
		return nil, nil, &InvalidError{"signature", "is not that of the statement by the key that is named: one of the three was changed"}
	}
	return e.Payload, key, nil
}

// differ is the first place where two texts differ, or -1.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
