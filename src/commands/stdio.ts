import type { Readable, Writable } from 'node:stream'
import type { Env } from '../config/files/interpolate.ts'
import { type Millis, systemClock } from '../mesh/clock.ts'
import { settled } from '../registry/listing.ts'
import { readLines } from '../upstreams/stdio/lines.ts'
import type { Output } from './start.ts'
import { explained, parsed } from './wrap/arguments.ts'
import { Bridge } from './wrap/bridge.ts'
import { lineWriter } from './wrap/line-writer.ts'
import { reportFaults } from './wrap/report.ts'
import { untilSignal } from './wrap/signals.ts'
import { MAX_MESSAGE, startWrapped, WRAPPED } from './wrap/wrapped.ts'

const options = {
  plan: { type: 'string' },
  strict: { type: 'boolean', default: false },
  'log-level': { type: 'string', default: 'warn' },
  help: { type: 'boolean', short: 'h' },
} as const

const usage = `breakwater stdio [--plan FILE] [--strict] -- PROGRAM [ARGUMENT …]

  An MCP server over standard input and output that is PROGRAM with the whole mesh around it.

  --plan FILE           faults: a plan, a block "chaos", or a plan of mcp-chaos or mcp-chaos-monkey
  --strict              calls fail when the engine of the faults does
  --log-level LEVEL     trace, debug, info, warn, error or silent; on standard error (default: warn)`

/** How long the program may take to start, as one that is downloaded first does; the first message waits for it. */
const START_MS: Millis = 60_000

/** How long calls that are under way may take when the client has said all that it wanted to. */
const LAST_CALLS_MS: Millis = 5_000

/**
 * `breakwater stdio`: an MCP server over standard input and output that is another one with the mesh around it. Runs
 * until its input ends. Resolves to the exit code.
 */
export async function stdio(
  args: readonly string[],
  out: Output,
  env: Env,
  io: { readonly stdin: Readable; readonly stdout: Writable } = process,
): Promise<number> {
  const given = parsed(args, options)
  if (!given.ok || given.values.help === true) return explained(given, usage, out)
  const { values, positionals } = given
  const [command, ...rest] = positionals
  if (command === undefined) return explained({ ok: false, message: 'which program?' }, usage, out)
  const gateway = await startWrapped(
    {
      plan: values.plan,
      strict: values.strict,
      logLevel: values['log-level'],
      // A client that starts us in place of the program has meant its variables for the program.
      server: {
        command,
        args: rest,
        env: definedIn(env),
        timeouts: { connect: START_MS, discovery: START_MS },
      },
      // Nobody else can reach it, and the session ends with the input.
      gateway: { listen: '127.0.0.1:0', drain: 0, sessions: { max: 4, idle: '24d' } },
    },
    out,
    env,
  )
  if (typeof gateway === 'number') return gateway

  const { write, gone } = lineWriter(io.stdout)
  const url = `${gateway.data}/mcp/${WRAPPED}`
  const bridge = new Bridge({ url, clock: systemClock, maxMessage: MAX_MESSAGE, write })
  const stop = Promise.race([untilSignal(), gone])
  const serve = async () => {
    await settled(gateway.live.current.servers.values(), systemClock, START_MS)
    // An input that breaks off has ended.
    await readLines(io.stdin, MAX_MESSAGE, (line) => bridge.take(line)).catch(() => undefined)
    await bridge.settled(LAST_CALLS_MS)
  }
  await Promise.race([serve(), stop])
  io.stdin.destroy()
  await bridge.close()
  reportFaults(gateway.chaos.status(), out)
  await gateway.close()
  return 0
}

function definedIn(env: Env): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}
