import { z } from 'zod'
import { csvRows } from './csv.ts'
import { tableOf } from './table.ts'

/** Most deployments in a file. */
const MOST = 100_000

/** Most columns of CSV. */
const MOST_COLUMNS = 100

const name = z.string().min(1).max(200)
const time = z.iso.datetime({ offset: true, error: 'expected a time such as 2026-03-01T09:30:00Z' })

const deployment = z.strictObject({
  id: name,
  service: name,
  environment: name,
  started_at: time,
  /** Absent while the deployment is under way. */
  finished_at: time.nullish(),
  status: name,
  commit: name,
  commit_at: time.nullish(),
  caused_incident: z.boolean().nullish(),
  /** The time at which the service was well again. */
  restored_at: time.nullish(),
})

/** A deployment that a CI system reports. Times are in ISO 8601. */
export type Deployment = z.output<typeof deployment>

const millis = (text: string | null = null) => (text === null ? null : Date.parse(text))

/** The table of deployments. */
export const deploymentsTable = tableOf<Deployment, Deployment>('deployments', (one) => [one], [
  ['id', 'text', ({ id }) => id],
  ['service', 'text', ({ service }) => service],
  ['environment', 'text', ({ environment }) => environment],
  ['started_at', 'time', ({ started_at }) => millis(started_at)],
  ['finished_at', 'time?', ({ finished_at }) => millis(finished_at)],
  ['status', 'text', ({ status }) => status],
  ['commit', 'text', ({ commit }) => commit],
  ['commit_at', 'time?', ({ commit_at }) => millis(commit_at)],
  ['caused_incident', 'flag?', ({ caused_incident = null }) => caused_incident],
  ['restored_at', 'time?', ({ restored_at }) => millis(restored_at)],
])

/**
 * Reads deployments from a JSON array, or from CSV with the names of the columns in its first row. Throws an `Error`
 * whose message names the row, from 1, and the column.
 */
export function readDeployments(text: string): readonly Deployment[] {
  const marked = text.replace(/^\uFEFF/, '')
  const rows = /^\s*[[{]/.test(marked) ? jsonRows(marked) : csvObjects(marked)
  if (rows.length > MOST) throw new Error(`expected at most ${MOST} deployments, not ${rows.length}`)
  const rowOf = new Map<string, number>()
  return rows.map((row, at) => {
    const read = deployment.safeParse(row)
    if (!read.success) {
      const [{ path = [], message = '' } = {}] = read.error.issues
      throw new Error(`row ${at + 1}${path.length > 0 ? `, ${path.join('.')}` : ''}: ${message}`)
    }
    const { id } = read.data
    const earlier = rowOf.get(id)
    if (earlier !== undefined) throw new Error(`rows ${earlier} and ${at + 1} have the same id "${id}"`)
    rowOf.set(id, at + 1)
    return read.data
  })
}

function jsonRows(text: string): readonly unknown[] {
  const value: unknown = JSON.parse(text)
  if (!Array.isArray(value)) throw new Error('expected a JSON array of deployments')
  return value
}

function csvObjects(text: string): readonly unknown[] {
  const [head = [], ...rows] = csvRows(text)
  if (head.length > MOST_COLUMNS) throw new Error(`the first row names more than ${MOST_COLUMNS} columns`)
  const twice = head.find((column, at) => head.indexOf(column) !== at)
  if (twice !== undefined) throw new Error(`the first row names "${twice}" twice`)
  return rows.map((row, at) => {
    if (row.length !== head.length)
      throw new Error(`row ${at + 1} has ${row.length} fields, and the first row names ${head.length}`)
    return Object.fromEntries(head.map((column, field) => [column, csvValue(column, row[field] ?? '')]))
  })
}

function csvValue(column: string, text: string): string | boolean | null {
  if (text === '') return null
  if (column !== 'caused_incident') return text
  return /^(true|false)$/i.test(text) ? text.toLowerCase() === 'true' : text
}

/**
 * The four delivery figures of each service in production: successful deployments a day, median hours from commit to
 * the deployment's end, share of deployments that caused an incident, and median hours until the service was well.
 */
export const DELIVERY_QUERY = `SELECT service,
  count(*) / (date_diff('day', min(finished_at), max(finished_at)) + 1) AS deployments_a_day,
  median(date_diff('second', commit_at, finished_at)) / 3600 AS lead_time_hours,
  avg(caused_incident::INT) AS change_failure_rate,
  median(date_diff('second', finished_at, restored_at)) / 3600 AS restore_hours
FROM deployments
WHERE environment = 'production' AND status = 'success'
GROUP BY service ORDER BY service`
