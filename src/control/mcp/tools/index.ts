import type { ControlTool } from '../tool.ts'
import { estimateBlastRadius } from './estimate-blast-radius.ts'
import { explainCall } from './explain-call.ts'
import { getGameDay } from './get-gameday.ts'
import { getPlan } from './get-plan.ts'
import { getRun } from './get-run.ts'
import { getStatus } from './get-status.ts'
import { listFaultKinds } from './list-fault-kinds.ts'
import { listIncidents } from './list-incidents.ts'
import { listPlans } from './list-plans.ts'
import { listRuns } from './list-runs.ts'
import { listServers } from './list-servers.ts'
import { proposeRun } from './propose-run.ts'
import { queryRuns } from './query-runs.ts'
import { startGameDay } from './start-gameday.ts'
import { startRun } from './start-run.ts'
import { stopRun } from './stop-run.ts'
import { suggestNext } from './suggest-next.ts'
import { updateGameDay } from './update-gameday.ts'

/** The tools of the control MCP server, in the order of their likely use. */
export const tools: readonly ControlTool[] = [
  getStatus,
  listServers,
  listFaultKinds,
  listPlans,
  getPlan,
  estimateBlastRadius,
  suggestNext,
  proposeRun,
  startRun,
  getRun,
  stopRun,
  startGameDay,
  getGameDay,
  updateGameDay,
  listRuns,
  queryRuns,
  listIncidents,
  explainCall,
]
