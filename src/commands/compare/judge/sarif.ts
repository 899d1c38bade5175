import { isAbsolute } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ruleNames, rules } from '../../../judge/index.ts'
import type { Place } from '../../../judge/task.ts'
import type { TaskFinding } from '../../../judge/verdicts.ts'
import { version } from '../../../protocol/identity.ts'
import type { Report } from './report.ts'

/** Most results of a run that readers such as GitHub accept. */
const MOST = 25_000

/** Most further lines that a result names. */
const MOST_RELATED = 100

/** Returns the report in SARIF 2.1.0: proven findings are errors, likely findings are warnings. */
export function judgementSarif({ findings, rules: summaries }: Report): string {
  const omitted = Math.max(0, findings.length - MOST)
  const notifications = [
    ...summaries.flatMap(({ rule, undecided }) =>
      undecided.map(({ why, tasks }) => `${rule} is not decidable for ${tasks} tasks: ${why}`),
    ),
    ...(omitted === 0 ? [] : [`${omitted} findings are left out: the limit is ${MOST}`]),
  ]
  const driver = {
    name: 'breakwater judge',
    version,
    rules: ruleNames.map((id) => ({
      id,
      name: id.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase()),
      shortDescription: { text: `The agent ${rules[id].title}.` },
      fullDescription: { text: rules[id].help },
      help: { text: rules[id].help },
      defaultConfiguration: { level: 'error' },
    })),
  }
  const run = {
    tool: { driver },
    invocations: [
      {
        executionSuccessful: true,
        toolExecutionNotifications: notifications.map((text) => ({ level: 'note', message: { text } })),
      },
    ],
    columnKind: 'utf16CodeUnits',
    results: findings.slice(0, MOST).map(resultOf),
  }
  const log = { $schema: 'https://json.schemastore.org/sarif-2.1.0.json', version: '2.1.0', runs: [run] }
  return JSON.stringify(log, undefined, 2)
}

function resultOf({ rule, level, task, message, calls, fault }: TaskFinding) {
  const others = calls.slice(0, -1).slice(-MOST_RELATED)
  const last = calls.at(-1)
  return {
    ruleId: rule,
    ruleIndex: ruleNames.indexOf(rule),
    level: level === 'proven' ? 'error' : 'warning',
    message: { text: `${message}.` },
    locations: last === undefined ? [] : [locationOf(last)],
    ...(others.length > 0 && { relatedLocations: others.map((place, id) => ({ id, ...locationOf(place) })) }),
    properties: { task, level, ...(fault !== undefined && { fault }) },
  }
}

function locationOf({ file, line }: Place) {
  const uri = isAbsolute(file)
    ? pathToFileURL(file).href
    : file.split(/[\\/]/).map(encodeURIComponent).join('/')
  return { physicalLocation: { artifactLocation: { uri }, region: { startLine: line } } }
}
