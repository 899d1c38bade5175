import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Exchange } from './player.ts'

/** The compiled tool is in `build`, the record is with the sources. */
const file = fileURLToPath(new URL('../../../test/exchanges/recorded.jsonl', import.meta.url))

/** Headers or bodies of at least this many characters are written once, and then only referred to. */
const LONG = 60

/**
 * An exchange as a line of the record. `headersOf` and `bodyOf` are the line, from 1, with the same headers or body.
 */
interface Line {
  readonly title: string
  readonly sent: string
  readonly status: number
  readonly headers?: readonly string[]
  readonly headersOf?: number
  readonly body?: string
  readonly bodyOf?: number
  readonly end?: 'closed' | 'dropped'
}

/** Writes the record: a line of JSON for each exchange, in order. */
export async function writeRecord(exchanges: readonly Exchange[]): Promise<void> {
  const headersSeen = new Map<string, number>()
  const bodiesSeen = new Map<string, number>()
  const lines = exchanges.map(({ headers, body, ...rest }, index): Line => {
    const headersOf = before(headersSeen, headers.join('\n'), index + 1)
    const bodyOf = before(bodiesSeen, body, index + 1)
    return {
      ...rest,
      ...(headersOf === undefined ? { headers } : { headersOf }),
      ...(bodyOf === undefined ? { body } : { bodyOf }),
    }
  })
  await writeFile(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
}

/** Returns the earlier line with a long text; notes `line` if there is none. */
function before(seen: Map<string, number>, text: string, line: number): number | undefined {
  const known = text.length < LONG ? undefined : seen.get(text)
  if (known === undefined) seen.set(text, line)
  return known
}

export async function readRecord(): Promise<readonly Exchange[]> {
  const exchanges: Exchange[] = []
  for (const text of (await readFile(file, 'utf8')).split('\n').slice(0, -1)) {
    const { headers, headersOf = 0, body, bodyOf = 0, ...rest } = JSON.parse(text) as Line
    exchanges.push({
      ...rest,
      headers: headers ?? exchanges[headersOf - 1]?.headers ?? [],
      body: body ?? exchanges[bodyOf - 1]?.body ?? '',
    })
  }
  return exchanges
}
