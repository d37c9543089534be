package proxy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The numbers of punycode (RFC 3492, section 5).
const (
	punyBase, punyMin, punyMax = 36, 1, 26
	punySkew, punyDamp         = 38, 700
	punyBias, punyFirst        = 72, 128
)

// ascii returns a label, in small letters, as it goes over the wire. Letters of other scripts
// become xn--; what would have to be composed or mapped first, with tables
// that this package does not have, is no label and has to be written as xn--.
func ascii(label string) (string, bool) {
	plain := true
	for _, r := range label {
		if r < utf8.RuneSelf {
			continue
		}
		plain = false
		// Two readings of one name: some programs keep these, others map them
		// to something else.
		ambiguous := strings.ContainsRune("ßςſ", r) || r >= 0xf900 && r <= 0xffff
		if r == utf8.RuneError || ambiguous || !unicode.IsLetter(r) && !unicode.Is(unicode.Nd, r) {
			return "", false
		}
	}
	if plain {
		return label, true
	}
	encoded, ok := punycode([]rune(label))
	return "xn--" + encoded, ok
}

// punycode encodes a label (RFC 3492, section 6.3).
func punycode(label []rune) (string, bool) {
	if len(label) > 63 {
		return "", false
	}
	var out []byte
	for _, r := range label {
		if r < punyFirst {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias := rune(punyFirst), 0, punyBias
	for done := basic; done < len(label); n++ {
		next := rune(unicode.MaxRune)
		for _, r := range label {
			if r >= n && r < next {
				next = r
			}
		}
		delta += int(next-n) * (done + 1)
		n = next
		for _, r := range label {
			switch {
			case r < n:
				delta++
			case r == n:
				out = punyNumber(out, delta, bias)
				bias = punyAdapt(delta, done+1, done == basic)
				delta = 0
				done++
			}
		}
		delta++
	}
	return string(out), true
}

func punyNumber(out []byte, q, bias int) []byte {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	for k := punyBase; ; k += punyBase {
		t := min(max(k-bias, punyMin), punyMax)
		if q < t {
			return append(out, digits[q])
		}
		out = append(out, digits[t+(q-t)%(punyBase-t)])
		q = (q - t) / (punyBase - t)
	}
}

func punyAdapt(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyMin)*punyMax/2; k += punyBase {
		delta /= punyBase - punyMin
	}
	return k + (punyBase-punyMin+1)*delta/(delta+punySkew)
}
