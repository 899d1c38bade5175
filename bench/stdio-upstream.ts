/** The server of upstream.ts over stdio, a JSON text a line: for gateways that start their servers. */
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { echo, envelope, type Request } from './echo.ts'

const { values } = parseArgs({ options: { fill: { type: 'string', default: '0' } } })
const outcomeOf = echo(Number(values.fill))

// Ends with its input, because its parent may have been killed.
createInterface({ input: process.stdin }).on('line', (line) => {
  const request = JSON.parse(line) as Request
  if (request.id !== undefined) process.stdout.write(`${envelope(outcomeOf(request), request.id)}\n`)
})
process.once('SIGTERM', () => process.exit(0))
