import { element, escaped, inSeconds } from '../../shared/xml.ts'
import type { Checked, Result } from './result.ts'

/** A case of a suite: an assertion, or the run itself when it proves nothing or was skipped. */
interface Case {
  readonly name: string
  readonly kind: 'pass' | 'failure' | 'error' | 'skipped'
  readonly message: string
}

const kinds = { pass: 'pass', fail: 'failure', undecided: 'error', skipped: 'skipped' } as const

function casesOf({ checks, flaws, skipped }: Result): Case[] {
  const ofCheck = ({ name, verdict, measured }: Checked): Case => ({
    name,
    kind: kinds[verdict],
    message: measured,
  })
  return [
    ...flaws.map((message): Case => ({ name: 'the run is valid', kind: 'error', message })),
    ...(skipped === undefined ? [] : [{ name: 'the run', kind: 'skipped', message: skipped } as const]),
    ...checks.map(ofCheck),
  ]
}

function propertiesOf({ seed, durationMs, servers, traffic, faults }: Result): string[] {
  const property = (name: string, value: string | number | undefined) =>
    value === undefined ? [] : [element('property', { name, value })]
  const counts = faults.flatMap(({ name, counts: seen }) =>
    (['decided', 'injected', 'masked', 'delayed', 'surfaced', 'escaped', 'notReached'] as const).flatMap(
      (key) => property(`fault.${name}.${key}`, seen?.[key]),
    ),
  )
  const endings = Object.entries(traffic?.endings ?? {}).flatMap(([word, count]) =>
    property(`calls.${word}`, count),
  )
  return [
    ...property('seed', seed === undefined ? undefined : String(seed)),
    ...property('durationMs', durationMs),
    ...property('servers', servers.join(', ')),
    ...property('calls', traffic?.calls),
    ...endings,
    ...counts,
  ]
}

/** Returns a suite per scenario with a case per assertion, as JUnit's readers expect. */
export function junitOf(results: readonly Result[]): string {
  const suites = results.map((result) => {
    const cases = casesOf(result)
    const count = (kind: Case['kind']) => cases.filter((one) => one.kind === kind).length
    const numbers = {
      tests: cases.length,
      failures: count('failure'),
      errors: count('error'),
      skipped: count('skipped'),
    }
    const classname = `breakwater.scenario.${result.scenario}`
    const written = cases.map(({ name, kind, message }) =>
      kind === 'pass'
        ? element('testcase', { name, classname }, [element('system-out', {}, [escaped(message)])])
        : element('testcase', { name, classname }, [
            kind === 'skipped' ? element(kind, { message }) : element(kind, { message, type: kind }),
          ]),
    )
    const about = {
      name: result.scenario,
      ...numbers,
      time: inSeconds(result.tookMs),
      timestamp: new Date(result.startedAt).toISOString().replace(/Z$/, ''),
    }
    return {
      numbers,
      tookMs: result.tookMs,
      text: element('testsuite', about, [element('properties', {}, propertiesOf(result)), ...written]),
    }
  })
  const sum = (key: keyof (typeof suites)[number]['numbers']) =>
    suites.reduce((total, { numbers }) => total + numbers[key], 0)
  const all = {
    name: 'breakwater scenario',
    tests: sum('tests'),
    failures: sum('failures'),
    errors: sum('errors'),
    skipped: sum('skipped'),
    time: inSeconds(suites.reduce((total, { tookMs }) => total + tookMs, 0)),
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n${element(
    'testsuites',
    all,
    suites.map(({ text }) => text),
  )}\n`
}
