import { editorSchema } from './editor-schema.ts'

// This program prints the content of config/breakwater.schema.json.
process.stdout.write(`${JSON.stringify(editorSchema(), null, 2)}\n`)
