import type { RecordedAttempt, RecordedCall, RecordingHeader } from '../../src/telemetry/recording/format.ts'

/** The header of a recording. */
export const header = (more: object = {}): RecordingHeader => ({
  breakwaterRecording: 2,
  version: '0.1.0',
  startedAt: '2026-01-01T00:00:00.000Z',
  part: 1,
  environment: 'staging',
  sample: 1,
  policiesHash: 'p',
  servers: {},
  ...more,
})

/** A recorded attempt that succeeded after 10 ms. */
export const attempt = (more: Partial<RecordedAttempt> = {}): RecordedAttempt => ({
  number: 1,
  at: 0,
  tookMs: 10,
  outcome: 'returned',
  verdict: 'unchecked',
  requestBytes: 100,
  replyBytes: 100,
  ...more,
})

/** An attempt answered with HTTP 503. */
export const failure = (more: Partial<RecordedAttempt> = {}): RecordedAttempt => {
  const { verdict: _, replyBytes: __, ...rest } = attempt()
  return { ...rest, outcome: 'transport_error', reason: 'upstream_status', status: 503, ...more }
}

/** A recorded call of one good attempt. */
export const call = (more: Partial<RecordedCall> = {}): RecordedCall => ({
  at: 0,
  task: 'task',
  key: 'key',
  server: 'shop',
  tool: 'look',
  effect: 'read_only',
  tenant: 'tenant',
  result: 'returned',
  tookMs: 10,
  waitedMs: 0,
  overheadMs: 0,
  retries: 0,
  attempts: [attempt()],
  ...more,
})
