// What the tests of the OpenAI surface run against: one server, or with DIVISI_PLACEMENT=ROLE,...
// a cluster of such workers, which has to pass the same tests.
import { UpCluster } from './cluster.mjs';
import { Server } from './server.mjs';

const roles = process.env.DIVISI_PLACEMENT?.split(',');

// What `divisi gateway` takes of the arguments of `divisi serve`; the rest is the workers'.
const kGatewayArgs = ['--api-key', '--max-waiting'];

// args: as of `divisi serve`, each a flag and a value.
export async function startSubject(args = [], options = {}) {
  if (!roles) return Server.start(args, options);
  const split = { args: [], gatewayArgs: [] };
  for (let i = 0; i < args.length; i += 2) {
    split[kGatewayArgs.includes(args[i]) ? 'gatewayArgs' : 'args'].push(args[i], args[i + 1]);
  }
  return UpCluster.start(roles, { ...split, ...options });
}
