import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { script } from './middle.ts'
import { ofOther, OTHER, subjects } from './subjects.ts'
import type { Subject } from './subjects.ts'
import { workloads } from './workload.ts'
import type { Workload } from './workload.ts'

export interface Options {
  readonly subjects: readonly Subject[]
  readonly workloadName: string
  readonly workload: Workload
  /** Name of the reference subject. */
  readonly base: string
  readonly rounds: number
  /** How often the processes are started anew; each start has its share of the rounds. */
  readonly starts: number
  /** Sessions, each with one call under way at a time. */
  readonly callers: number
  /** Largest allowed ratio to the base, by row. */
  readonly bounds: ReadonlyMap<string, number>
  readonly json: string | undefined
  /** True: shows where the middle processes spend their time. */
  readonly profile: boolean
}

/** Reads the command line. Throws an error that lists the valid words. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      workload: { type: 'string', default: 'small' },
      only: { type: 'string', multiple: true },
      base: { type: 'string', default: 'floor' },
      against: { type: 'string' },
      rounds: { type: 'string' },
      starts: { type: 'string' },
      callers: { type: 'string', default: '32' },
      json: { type: 'string' },
      bound: { type: 'string', multiple: true, default: [] },
      quick: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
    },
  })
  const workload = workloads[values.workload]
  if (workload === undefined) throw new Error(`--workload: expected ${Object.keys(workloads).join(', ')}`)
  const own = values.profile ? subjects.map(byModule) : subjects
  const known = values.against === undefined ? own : besides(own, values.against)
  const only = values.only?.map((name) => subjectNamed('--only', subjects, name).name)
  const rounds = count('--rounds', values.rounds ?? (values.quick ? '5' : '40'), 200)
  return {
    subjects: only === undefined ? known : known.filter(({ name }) => only.includes(name.replace(OTHER, ''))),
    base: subjectNamed('--base', known, values.base).name,
    workloadName: values.workload,
    workload,
    rounds,
    starts: Math.min(rounds, startsOf(values)),
    callers: count('--callers', values.callers, 256),
    bounds: new Map(values.bound.map(boundOf)),
    json: values.json,
    profile: values.profile,
  }
}

function startsOf({ starts, quick, profile }: { starts?: string; quick: boolean; profile: boolean }): number {
  if (profile && starts !== undefined)
    throw new Error('--starts: a profile covers one process; omit --starts')
  return count('--starts', starts ?? (quick || profile ? '1' : '4'), 20)
}

/** Runs compiled modules instead of the bundle, so that a profile names modules. */
function byModule(subject: Subject): Subject {
  return typeof subject.middle === 'string' ? subject : { ...subject, main: script('../src/main.js') }
}

/** Follows each Breakwater row with the same row from a build in another checkout. */
function besides(chosen: readonly Subject[], folder: string): Subject[] {
  const main = resolve(folder, 'build/dist/main.js')
  if (!existsSync(main)) throw new Error(`--against: there is no ${main}: run npm run build:all there first`)
  return chosen.flatMap((subject) =>
    typeof subject.middle === 'string' ? [subject] : [subject, ofOther(subject, main)],
  )
}

function subjectNamed(option: string, known: readonly Subject[], name: string): Subject {
  const subject = known.find((subject) => subject.name === name)
  if (subject !== undefined) return subject
  throw new Error(`${option}: expected ${known.map(({ name }) => name).join(', ')}`)
}

/** `server=2.5`: the row, and its largest ratio to the base. */
function boundOf(text: string): [string, number] {
  const [name = '', ratio = ''] = text.split('=')
  const most = Number(ratio)
  if (!(most > 0)) throw new Error('--bound: expected NAME=RATIO, such as server=2.5')
  return [subjectNamed('--bound', subjects, name).name, most]
}

function count(option: string, text: string, max: number): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= 1 && value <= max) return value
  throw new Error(`${option}: expected a whole number from 1 to ${max}`)
}
