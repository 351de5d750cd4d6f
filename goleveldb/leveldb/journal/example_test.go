package journal_test

import (
	"bytes"
	"fmt"
	"io"
	"log"

	"github.com/syndtr/goleveldb/leveldb/journal"
)

func Example() {
	var file bytes.Buffer
	w := journal.NewWriter(&file)
	for _, text := range []string{"first", "second"} {
		j, err := w.Next()
		if err != nil {
			log.Fatal(err)
		}
		if _, err := io.WriteString(j, text); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r := journal.NewReader(&file, nil, true, true)
	for {
		j, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(j)
		fmt.Printf("%s %v\n", text, err)
	}
	// Output:
	// first <nil>
	// second <nil>
}
