import { Writable } from 'node:stream'
import pino from 'pino'
import type { Log } from '../../src/telemetry/log.ts'

/** A silent log. */
export const silent: Log = pino({ level: 'silent' })

/** A log, and its lines so far. */
export function recordedLog(): { log: Log; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = []
  const output = new Writable({
    write(chunk: Buffer, _, done) {
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>)
      done()
    },
  })
  return { log: pino({ level: 'debug', base: null }, output), lines }
}
