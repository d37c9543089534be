package inspection

import (
	"errors"
	"strings"
	"unicode"
)

// maxAsked bounds how many names are kept of one kind; one more stands for all others.
const maxAsked = 1000

// Names that no list of names permits, because they begin with what is in no name.
const (
	notText  = "(not a string)"
	tooMany  = "(too many)"
	newBox   = "auto" // a container that is made for the call
	maxField = 64     // bytes of the longest name of a field that is looked at
)

// errModel refuses a request whose model readers may see differently.
var errModel = errors.New("names its model in more than one way, or not by a string")

// A kind is what the value of a field asks for.
type kind uint8

const (
	plainKind kind = iota
	modelKind
	tierKind
	geoKind
	betaKind
	fileKind
	containerKind
	containerID // within the value of a containerKind
	hiddenKind
)

// atTop are the fields at the top of a body, and anywhere those at any depth, by their folded
// names.
var (
	atTop = map[string]kind{
		"model": modelKind, "speed": tierKind, "betas": betaKind, "anthropicbeta": betaKind, "openaibeta": betaKind,
		// Gateways merge these into the request or its headers, or choose another model by them.
		"extrabody": hiddenKind, "extraheaders": hiddenKind, "provideroptions": hiddenKind, "models": hiddenKind, "fallbacks": hiddenKind,
	}
	anywhere = map[string]kind{
		"servicetier": tierKind, "inferencegeo": geoKind,
		"fileid": fileKind, "fileids": fileKind, "fileuri": fileKind, "vectorstoreids": fileKind,
		"container": containerKind, "containerid": containerKind,
	}
)

// fold makes those names equal that some reader of JSON takes for the same: without regard to case, as
// the one of Go does, and with either spelling of Protocol Buffers.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '_', '-':
			return -1
		case 'ſ':
			return 's'
		case '\u212a': // the sign of Kelvin
			return 'k'
		}
		return unicode.ToLower(r)
	}, name)
}

// kindOf says what the field at the path asks for.
func (in *inspector) kindOf(name string) kind {
	switch {
	case len(name) > maxField:
		return plainKind
	case len(in.path) == 1:
		folded := fold(name)
		if k, ok := atTop[folded]; ok {
			return k
		}
		return anywhere[folded]
	case in.path[0] == "metadata": // labels, which mean nothing to the provider
		return plainKind
	case in.kind == containerKind && fold(name) == "id":
		return containerID
	}
	return anywhere[fold(name)]
}

// asked returns where names of the current kind are kept; nil: they are not.
func (in *inspector) asked() *[]string {
	switch in.kind {
	case tierKind:
		return &in.found.Tiers
	case geoKind:
		return &in.found.Geos
	case betaKind:
		return &in.found.Betas
	case fileKind:
		return &in.found.Files
	case containerKind, containerID:
		return &in.found.Containers
	}
	return nil
}

// note takes note of a value of the current field, or of an entry of its list.
func (in *inspector) note(value string) {
	names := in.asked()
	switch {
	case names == nil:
	case len(*names) < maxAsked:
		*names = append(*names, value)
	default:
		(*names)[maxAsked-1] = tooMany
	}
}

// noteOther takes note of a value that is neither a string nor an object.
func (in *inspector) noteOther(literal []byte) error {
	if string(literal) == "null" {
		return nil
	}
	in.note(notText)
	if in.kind == modelKind {
		return errModel
	}
	return nil
}

// inField reads the value of a field with what it asks for.
func (in *inspector) inField(name string) error {
	was := in.kind
	in.kind = in.kindOf(name)
	defer func() { in.kind = was }()
	first := in.next()
	if in.kind == modelKind && (name != "model" || first == '[' || first == '{') {
		return errModel
	}
	if in.kind == hiddenKind {
		in.found.Hidden = name
	}
	return in.value()
}

// noteObject reads an object, and takes note of it if a name is expected.
func (in *inspector) noteObject() error {
	if in.kind != containerKind {
		in.note(notText)
		return in.object()
	}
	before := len(in.found.Containers)
	err := in.object()
	if len(in.found.Containers) == before {
		in.note(newBox)
	}
	return err
}

// Models returns the model, as a list.
func (q Inquiry) Models() []string {
	if q.Model == "" {
		return nil
	}
	return []string{strings.TrimPrefix(q.Model, "models/")}
}
