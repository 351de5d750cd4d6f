package main

import (
	"errors"
	"fmt"

	"github.com/siftdb/sift"
)

type getCmd struct {
	form
	asJSON
	Raw bool   `help:"Print the bytes of the value unescaped, without a newline." xor:"form,json"`
	Dir string `arg:"" help:"The database."`
	Key string `arg:"" help:"The key."`
}

func (getCmd) Help() string {
	return `Prints the value of a key and a newline. If the key does not exist, it says so on
standard error and exits with status 1.

Examples:

    sift get db user:17
    sift get --hex db 00ff
    sift get --raw db photo.png > photo.png`
}

func (c *getCmd) Run(e *env) error {
	key, err := c.arg("key", c.Key)
	if err != nil {
		return err
	}
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		value, err := db.Get(key)
		if errors.Is(err, sift.ErrNotFound) {
			return fmt.Errorf(`key "%s": %w`, c.append(nil, key), errNoKey)
		}
		if err != nil {
			return err
		}
		if c.JSON {
			text := string(c.append(nil, value))
			return e.writeJSON(entryJSON{string(c.append(nil, key)), &text})
		}
		if !c.Raw {
			value = append(c.append(nil, value), '\n')
		}
		_, err = e.out.Write(value)
		return err
	})
}

var errNoKey = errors.New("there is no such key")
