% Values of MALSAR 1.1 on problem.csv: octave malsar.m FOLDER > malsar.csv, FOLDER that of MALSAR.
1;
function [x, lambda] = eplb(v, n, z, start)  % theirs is compiled: projection onto an L1 ball
  x = v; lambda = 0;
  if sum(abs(v)) > z
    u = sort(abs(v), 'descend');
    tops = (cumsum(u) - z) ./ (1:n)';
    lambda = tops(find(u > tops, 1, 'last'));
    x = sign(v) .* max(abs(v) - lambda, 0);
  end
end
function [mu, a, b] = prf_lbm(D, d, m, tau)  % theirs is compiled: rows' projections onto L1 balls
  mu = D; a = b = [];
  for i = 1:d
    mu(i, :) = eplb(D(i, :)', m, tau, 0)';
  end
end
folder = argv(){1};
addpath(fullfile(folder, 'utils'));
for room = {'robust', 'sparse_low_rank', 'low_rank', 'joint_feature_learning', 'Lasso', 'CMTL', ...
            'SRMTL', 'rMTFL'}  % several rooms have a diagonalize.m
  addpath(fullfile(folder, 'functions', room{1}));
end
T = csvread('problem.csv', 1, 0);
m = max(T(:, 1)) + 1;
X = cell(1, m); Y = X; L = X;
for k = 1:m
  rows = T(:, 1) == k - 1;
  X{k} = T(rows, 5:9); Y{k} = T(rows, 3); L{k} = T(rows, 4);
end
opts = struct('init', 2, 'tFlag', 1, 'tol', 1e-14, 'maxIter', 20000);
function say(name, a, b, value, extra)
  printf('%s,%.12g,%.12g,%.12g,%.12g\n', name, a, b, value, extra);
end
printf('function,rho1,rho2,value,extra\n');
[W, f] = Least_RMTL(X, Y, 8, 5, opts); say('Least_RMTL', 8, 5, f(end), NaN);
[W, f] = Least_rMTFL(X, Y, 8, 10, opts); say('Least_rMTFL', 8, 10, f(end), NaN);
[W, f, P, Q] = Least_SparseTrace(X, Y, 5, 6, opts);
say('Least_SparseTrace', 5, 6, f(end), sum(svd(Q)));
[W, f] = Least_Trace(X, Y, 3, opts); say('Least_Trace', 3, 0, f(end), NaN);
[W, f] = Least_L21(X, Y, 3, opts); say('Least_L21', 3, 0, f(end), NaN);
[W, f] = Least_Lasso(X, Y, 2, opts); say('Least_Lasso', 2, 0, f(end), NaN);
R = eye(m) - ones(m) / m;
[W, f] = Least_SRMTL(X, Y, R, 3, 0, opts); say('Least_SRMTL', 3, 0, f(end), NaN);
[W, f] = Least_SRMTL(X, Y, R, 3, 2, opts); say('Least_SRMTL', 3, 2, f(end), NaN);
[W, C, f] = Logistic_Trace(X, L, 0.1, opts); say('Logistic_Trace', 0.1, 0, f(end), NaN);
[W, C, f] = Logistic_L21(X, L, 0.1, opts); say('Logistic_L21', 0.1, 0, f(end), NaN);
[W, C, f, M] = Logistic_CMTL(X, L, 0.1, 0.05, 3, opts);
say('Logistic_CMTL', 0.1, 0.05, f(end), max(real(eig(M))));
[W, C, f] = Logistic_SRMTL(X, L, R, 0.2, 0, opts); say('Logistic_SRMTL', 0.2, 0, f(end), NaN);
[W, C, f] = Logistic_SRMTL(X, L, R, 0.2, 0.05, opts);
say('Logistic_SRMTL', 0.2, 0.05, f(end), NaN);
addpath(fullfile(folder, 'functions', 'dirty'));
[W, f] = Least_Dirty(X, Y, 10, 4, opts); say('Least_Dirty', 10, 4, f(end), NaN);
