package control

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

const messageID = "0198c0de-0000-7000-8000-000000000000"

// sized is a GIF of so many bytes, as far as its first bytes tell.
func sized(n int) Image {
	return Image{Type: "image/gif", Data: []byte("GIF89a" + strings.Repeat("x", n-6))}
}

func TestImages(t *testing.T) {
	quarter := sized(MaxImageBytes / MaxImages)
	for _, tt := range []struct {
		name    string
		message Message
		field   string // that is wrong; empty: none is
	}{
		{"each type", Message{Verb: Prompt, Images: []Image{
			{"image/png", []byte("\x89PNG\r\n\x1a\nx")}, {"image/jpeg", []byte("\xff\xd8\xff\xe0")},
			{"image/gif", []byte("GIF87a")}, {"image/webp", []byte("RIFF1234WEBPVP8 ")},
		}}, ""},
		{"as many and as large as are allowed", Message{Verb: Prompt, Text: strings.Repeat("x", MaxText), Images: []Image{quarter, quarter, quarter, quarter}}, ""},
		{"one as large as all", Message{Verb: Prompt, Images: []Image{sized(MaxImageBytes)}}, ""},
		{"one byte too many", Message{Verb: Prompt, Images: []Image{quarter, quarter, quarter, sized(MaxImageBytes/MaxImages + 1)}}, "images"},
		{"one image too many", Message{Verb: Prompt, Images: []Image{sized(6), sized(6), sized(6), sized(6), sized(6)}}, "images"},
		{"another type than it says", Message{Verb: Prompt, Images: []Image{sized(6), {"image/png", []byte("GIF89a")}}}, "images[1].type"},
		{"a type that agents do not take", Message{Verb: Prompt, Images: []Image{{"image/svg+xml", []byte("<svg/>")}}}, "images[0].type"},
		{"no type", Message{Verb: Prompt, Images: []Image{{"", []byte("GIF89a")}}}, "images[0].type"},
		{"no image", Message{Verb: Prompt, Images: []Image{{"image/png", []byte("hello")}}}, "images[0].data"},
		{"an empty image", Message{Verb: Prompt, Images: []Image{{"image/png", nil}}}, "images[0].data"},
		{"sound in the same container", Message{Verb: Prompt, Images: []Image{{"image/webp", []byte("RIFF1234WAVEfmt ")}}}, "images[0].data"},
		{"neither text nor images", Message{Verb: Prompt, Images: []Image{}}, "text"},
		{"images of an answer", Message{Verb: Answer, Text: "x", Images: []Image{sized(6)}}, "images"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.message.ID = messageID
			data, err := json.Marshal(tt.message)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(data)
			invalid, refused := errors.AsType[*jobs.InvalidError](err)
			if tt.field == "" {
				if err != nil || len(got.Images) != len(tt.message.Images) {
					t.Errorf("read with %d images, %v", len(got.Images), err)
				}
				return
			}
			if !refused || invalid.Fields[0].Field != tt.field {
				t.Errorf("got %v, want the field %s named", err, tt.field)
			}
		})
	}
}

// Images do not make room for more of anything else, and a message is not read that
// is larger than a message can be.
func TestBoundsOfAMessageWithImages(t *testing.T) {
	message := func(image Image, model string) []byte {
		data, err := json.Marshal(Message{ID: messageID, Verb: Prompt, Text: "x", Images: []Image{image}, Model: model})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, data := range map[string][]byte{
		"much else":     message(sized(1000), strings.Repeat("x", MaxBytes)),
		"a large image": message(sized(MaxImageBytes*3/2), ""),
	} {
		_, err := Decode(data)
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); !ok || invalid.Fields[0].Field != "(message)" {
			t.Errorf("%s: got %v, want that the message is too long", name, err)
		}
	}
	if MaxEncoded > 1<<20-64<<10 {
		t.Errorf("a message has up to %d bytes, which leaves no room in the payload of a broker", MaxEncoded)
	}
}

// The same image has the same name, which tells its type.
func TestStoredImage(t *testing.T) {
	a, b := sized(6).Stored(7), sized(7).Stored(7)
	if a != sized(6).Stored(7) || a.Artifact == b.Artifact || !strings.HasSuffix(a.Artifact, ".gif") || a.Epoch != 7 || a.Bytes != 6 {
		t.Errorf("stored as %+v and %+v", a, b)
	}
	if got := DescribeImages([]StoredImage{a}); got != "1 image (image/gif, 1 KiB)" {
		t.Errorf("described as %s", got)
	}
	if got := DescribeImages([]StoredImage{a, {Type: "image/png", Bytes: 12 << 10}}); got != "2 images (image/gif, 1 KiB; image/png, 12 KiB)" {
		t.Errorf("described as %s", got)
	}
}
